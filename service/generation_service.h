#ifndef TOKEND_SERVICE_GENERATION_SERVICE_H_
#define TOKEND_SERVICE_GENERATION_SERVICE_H_

#include "service/call_env.h"
#include "tokend/v1/generation.grpc.pb.h"

namespace tokend::service {

class GenerationServiceImpl : public v1::GenerationService::CallbackService {
 public:
  explicit GenerationServiceImpl(const CallEnv* env) : env_(env) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const v1::GenerateRequest* request,
                                     v1::GenerateResponse* response) override;
  grpc::ServerWriteReactor<v1::StreamResponse>* Stream(grpc::CallbackServerContext* context,
                                                       const v1::StreamRequest* request) override;
  grpc::ServerUnaryReactor* StopGeneration(grpc::CallbackServerContext* context,
                                           const v1::StopGenerationRequest* request,
                                           v1::StopGenerationResponse* response) override;

 private:
  const CallEnv* const env_;
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_GENERATION_SERVICE_H_
