#include "service/turn_reactors.h"

#include <memory>

#include "service/generate_call.h"
#include "service/status.h"
#include "service/stream_call.h"

namespace tokend::service {
namespace {

// Whoever sees it knows that the turn was admitted.
constexpr const char* kRequestIdHeader = "tokend-request-id";

class GenerateReactor : public grpc::ServerUnaryReactor, public GenerateCall {
 public:
  GenerateReactor(const CallEnv* env, grpc::CallbackServerContext* context,
                  v1::GenerateResponse* response)
      : GenerateCall(env, env->InfoOf(*context), response), context_(context) {}

  void Start(const v1::GenerateRequest& request) {
    KeepAlive();
    Begin(request);
  }

  void OnSendInitialMetadataDone(bool) override { MetadataSent(); }
  void OnCancel() override { ClientGone(); }
  void OnDone() override { Release(); }

 private:
  void SendMetadata() override {
    context_->AddInitialMetadata(kRequestIdHeader, output().request_id);
    StartSendInitialMetadata();
  }
  void End(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  grpc::CallbackServerContext* const context_;
};

class StreamReactor : public grpc::ServerWriteReactor<v1::StreamResponse>, public StreamCall {
 public:
  StreamReactor(const CallEnv* env, grpc::CallbackServerContext* context)
      : StreamCall(env, env->InfoOf(*context)), context_(context) {}

  void Start(const v1::StreamRequest& request) {
    KeepAlive();
    Begin(request);
  }

  void OnSendInitialMetadataDone(bool ok) override { OperationDone(ok); }
  void OnWriteDone(bool ok) override { OperationDone(ok); }
  void OnCancel() override { ClientGone(); }
  void OnDone() override { Release(); }

 private:
  void SendMetadata() override {
    context_->AddInitialMetadata(kRequestIdHeader, output().request_id);
    StartSendInitialMetadata();
  }
  void Write(const v1::StreamResponse* response) override { StartWrite(response); }
  void WriteAndEnd(const v1::StreamResponse* response) override {
    StartWriteAndFinish(response, grpc::WriteOptions(), grpc::Status::OK);
  }
  void End(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  grpc::CallbackServerContext* const context_;
};

}  // namespace

grpc::ServerUnaryReactor* StartGenerate(const CallEnv* env, grpc::CallbackServerContext* context,
                                        const v1::GenerateRequest& request,
                                        v1::GenerateResponse* response) {
  const auto call = std::make_shared<GenerateReactor>(env, context, response);
  call->Start(request);
  return call.get();
}

grpc::ServerWriteReactor<v1::StreamResponse>* StartStream(const CallEnv* env,
                                                          grpc::CallbackServerContext* context,
                                                          const v1::StreamRequest& request) {
  const auto call = std::make_shared<StreamReactor>(env, context);
  call->Start(request);
  return call.get();
}

}  // namespace tokend::service
