// Generate and Stream on gRPC.
#ifndef TOKEND_SERVICE_TURN_REACTORS_H_
#define TOKEND_SERVICE_TURN_REACTORS_H_

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "service/call_env.h"
#include "tokend/v1/generation.pb.h"

namespace tokend::service {

// gRPC holds what they return until the call is done.
grpc::ServerUnaryReactor* StartGenerate(const CallEnv* env, grpc::CallbackServerContext* context,
                                        const v1::GenerateRequest& request,
                                        v1::GenerateResponse* response);
grpc::ServerWriteReactor<v1::StreamResponse>* StartStream(const CallEnv* env,
                                                          grpc::CallbackServerContext* context,
                                                          const v1::StreamRequest& request);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_TURN_REACTORS_H_
