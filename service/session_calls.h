// SessionService's calls, without gRPC.
#ifndef TOKEND_SERVICE_SESSION_CALLS_H_
#define TOKEND_SERVICE_SESSION_CALLS_H_

#include "absl/status/status.h"
#include "service/call_env.h"
#include "tokend/v1/sessions.pb.h"

namespace tokend::service {

absl::Status CreateSession(const Caller& caller, const v1::CreateSessionRequest& request,
                           v1::CreateSessionResponse* response);
absl::Status GetSession(const Caller& caller, const v1::GetSessionRequest& request,
                        v1::GetSessionResponse* response);
absl::Status ListSessions(const Caller& caller, const v1::ListSessionsRequest& request,
                          v1::ListSessionsResponse* response);
absl::Status DeleteSession(const Caller& caller, const v1::DeleteSessionRequest& request,
                           v1::DeleteSessionResponse* response);
absl::Status ForkSession(const Caller& caller, const v1::ForkSessionRequest& request,
                         v1::ForkSessionResponse* response);
absl::Status RollbackSession(const Caller& caller, const v1::RollbackSessionRequest& request,
                             v1::RollbackSessionResponse* response);
absl::Status ListVersions(const Caller& caller, const v1::ListVersionsRequest& request,
                          v1::ListVersionsResponse* response);
absl::Status ReadTokens(const Caller& caller, const v1::ReadTokensRequest& request,
                        v1::ReadTokensResponse* response);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_SESSION_CALLS_H_
