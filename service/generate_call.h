#ifndef TOKEND_SERVICE_GENERATE_CALL_H_
#define TOKEND_SERVICE_GENERATE_CALL_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "service/turn_call.h"

namespace tokend::service {

// GenerationService.Generate: the same turn, collected.
class GenerateCall : public TurnCall {
 public:
  // `response` is good until End.
  GenerateCall(const CallEnv* env, CallInfo info, v1::GenerateResponse* response)
      : TurnCall(env, std::move(info), "Generate"), response_(response) {}

  // The engine's.
  void OnStarted(const engine::Started& started) override;
  void OnDelta(engine::Delta delta) override;
  void OnFinished(const engine::Finished& finished) override;
  void OnFailed(const absl::Status& status) override;
  // Nothing is written before the end: never behind, nothing taken.
  bool Writable() override { return true; }
  absl::Duration BlockedSince() override { return absl::InfiniteDuration(); }
  int32_t TakenTokens() override { return 0; }

 protected:
  // Once, first.
  void Begin(const v1::GenerateRequest& request);
  // The initial metadata is out, or the connection is gone.
  void MetadataSent();

  // Operations of the transport; the first ends with MetadataSent.
  virtual void SendMetadata() = 0;
  virtual void End(const absl::Status& status) = 0;

 private:
  // Ends the call once the turn has ended and the initial metadata is out.
  void TurnDone(const absl::Status& status);

  v1::GenerateResponse* const response_;
  engine::Delta collected_;  // engine thread only
  bool metadata_sent_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_GENERATE_CALL_H_
