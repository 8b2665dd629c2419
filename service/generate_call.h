#ifndef TOKEND_SERVICE_GENERATE_CALL_H_
#define TOKEND_SERVICE_GENERATE_CALL_H_

#include <cstdint>

#include "service/turn_call.h"

namespace tokend::service {

// GenerationService.Generate: the same turn, collected.
class GenerateCall : public grpc::ServerUnaryReactor, public TurnCall {
 public:
  static grpc::ServerUnaryReactor* Start(const CallEnv* env, grpc::CallbackServerContext* context,
                                         const v1::GenerateRequest& request,
                                         v1::GenerateResponse* response);

  GenerateCall(const CallEnv* env, grpc::CallbackServerContext* context,
               v1::GenerateResponse* response)
      : TurnCall(env, context, "Generate"), response_(response) {}

  // gRPC's.
  void OnSendInitialMetadataDone(bool ok) override;
  void OnCancel() override { ClientGone(); }
  void OnDone() override { Release(); }

  // The engine's.
  void OnStarted(const engine::Started& started) override;
  void OnDelta(engine::Delta delta) override;
  void OnFinished(const engine::Finished& finished) override;
  void OnFailed(const absl::Status& status) override;
  // Nothing is written before the end: never behind, nothing taken.
  bool Writable() override { return true; }
  absl::Duration BlockedSince() override { return absl::InfiniteDuration(); }
  int32_t TakenTokens() override { return 0; }

 private:
  void Begin(const v1::GenerateRequest& request);
  // Ends the call once the turn has ended and the initial metadata is out.
  void End(const absl::Status& status);

  v1::GenerateResponse* const response_;  // gRPC's; good until Finish
  engine::Delta collected_;               // engine thread only
  bool metadata_sent_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_GENERATE_CALL_H_
