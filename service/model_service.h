#ifndef TOKEND_SERVICE_MODEL_SERVICE_H_
#define TOKEND_SERVICE_MODEL_SERVICE_H_

#include "service/call_env.h"
#include "tokend/v1/model.grpc.pb.h"

namespace tokend::service {

class ModelServiceImpl : public v1::ModelService::CallbackService {
 public:
  explicit ModelServiceImpl(const CallEnv* env) : env_(env) {}

  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::GetModelResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;

 private:
  const CallEnv* const env_;
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_MODEL_SERVICE_H_
