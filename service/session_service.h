#ifndef TOKEND_SERVICE_SESSION_SERVICE_H_
#define TOKEND_SERVICE_SESSION_SERVICE_H_

#include "service/call_env.h"
#include "tokend/v1/sessions.grpc.pb.h"

namespace tokend::service {

// Every call answers at once: no session operation waits for a step.
class SessionServiceImpl : public v1::SessionService::CallbackService {
 public:
  explicit SessionServiceImpl(const CallEnv* env) : env_(env) {}

  grpc::ServerUnaryReactor* CreateSession(grpc::CallbackServerContext* context,
                                          const v1::CreateSessionRequest* request,
                                          v1::CreateSessionResponse* response) override;
  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const v1::GetSessionRequest* request,
                                       v1::GetSessionResponse* response) override;
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* request,
                                         v1::ListSessionsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteSession(grpc::CallbackServerContext* context,
                                          const v1::DeleteSessionRequest* request,
                                          v1::DeleteSessionResponse* response) override;
  grpc::ServerUnaryReactor* ForkSession(grpc::CallbackServerContext* context,
                                        const v1::ForkSessionRequest* request,
                                        v1::ForkSessionResponse* response) override;
  grpc::ServerUnaryReactor* RollbackSession(grpc::CallbackServerContext* context,
                                            const v1::RollbackSessionRequest* request,
                                            v1::RollbackSessionResponse* response) override;
  grpc::ServerUnaryReactor* ListVersions(grpc::CallbackServerContext* context,
                                         const v1::ListVersionsRequest* request,
                                         v1::ListVersionsResponse* response) override;
  grpc::ServerUnaryReactor* ReadTokens(grpc::CallbackServerContext* context,
                                       const v1::ReadTokensRequest* request,
                                       v1::ReadTokensResponse* response) override;

 private:
  const CallEnv* const env_;
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_SESSION_SERVICE_H_
