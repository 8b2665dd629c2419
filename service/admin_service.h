#ifndef TOKEND_SERVICE_ADMIN_SERVICE_H_
#define TOKEND_SERVICE_ADMIN_SERVICE_H_

#include <cstdint>

#include "service/call_env.h"
#include "tokend/v1/admin.grpc.pb.h"

namespace tokend::service {

class AdminServiceImpl : public v1::AdminService::CallbackService {
 public:
  explicit AdminServiceImpl(const CallEnv* env) : env_(env) {}

  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const v1::GetStatsRequest* request,
                                     v1::GetStatsResponse* response) override;

 private:
  const CallEnv* const env_;
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_ADMIN_SERVICE_H_
