#include "service/session_service.h"

#include "service/session_calls.h"

namespace tokend::service {

grpc::ServerUnaryReactor* SessionServiceImpl::CreateSession(grpc::CallbackServerContext* context,
                                                            const v1::CreateSessionRequest* request,
                                                            v1::CreateSessionResponse* response) {
  return AnswerNow(*env_, context, *request, [&](const Caller& caller) {
    return service::CreateSession(caller, *request, response);
  });
}

grpc::ServerUnaryReactor* SessionServiceImpl::GetSession(grpc::CallbackServerContext* context,
                                                         const v1::GetSessionRequest* request,
                                                         v1::GetSessionResponse* response) {
  return AnswerNow(*env_, context, *request, [&](const Caller& caller) {
    return service::GetSession(caller, *request, response);
  });
}

grpc::ServerUnaryReactor* SessionServiceImpl::ListSessions(grpc::CallbackServerContext* context,
                                                           const v1::ListSessionsRequest* request,
                                                           v1::ListSessionsResponse* response) {
  return AnswerNow(*env_, context, *request, [&](const Caller& caller) {
    return service::ListSessions(caller, *request, response);
  });
}

grpc::ServerUnaryReactor* SessionServiceImpl::DeleteSession(grpc::CallbackServerContext* context,
                                                            const v1::DeleteSessionRequest* request,
                                                            v1::DeleteSessionResponse* response) {
  return AnswerNow(*env_, context, *request, [&](const Caller& caller) {
    return service::DeleteSession(caller, *request, response);
  });
}

grpc::ServerUnaryReactor* SessionServiceImpl::ForkSession(grpc::CallbackServerContext* context,
                                                          const v1::ForkSessionRequest* request,
                                                          v1::ForkSessionResponse* response) {
  return AnswerNow(*env_, context, *request, [&](const Caller& caller) {
    return service::ForkSession(caller, *request, response);
  });
}

grpc::ServerUnaryReactor* SessionServiceImpl::RollbackSession(
    grpc::CallbackServerContext* context, const v1::RollbackSessionRequest* request,
    v1::RollbackSessionResponse* response) {
  return AnswerNow(*env_, context, *request, [&](const Caller& caller) {
    return service::RollbackSession(caller, *request, response);
  });
}

grpc::ServerUnaryReactor* SessionServiceImpl::ListVersions(grpc::CallbackServerContext* context,
                                                           const v1::ListVersionsRequest* request,
                                                           v1::ListVersionsResponse* response) {
  return AnswerNow(*env_, context, *request, [&](const Caller& caller) {
    return service::ListVersions(caller, *request, response);
  });
}

grpc::ServerUnaryReactor* SessionServiceImpl::ReadTokens(grpc::CallbackServerContext* context,
                                                         const v1::ReadTokensRequest* request,
                                                         v1::ReadTokensResponse* response) {
  return AnswerNow(*env_, context, *request, [&](const Caller& caller) {
    return service::ReadTokens(caller, *request, response);
  });
}

}  // namespace tokend::service
