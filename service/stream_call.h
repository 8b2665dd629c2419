#ifndef TOKEND_SERVICE_STREAM_CALL_H_
#define TOKEND_SERVICE_STREAM_CALL_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "service/turn_call.h"

namespace tokend::service {

// GenerationService.Stream. One operation is under way at a time; pieces that come
// meanwhile are merged, so none is lost and a slow reader costs bounded memory.
class StreamCall : public TurnCall {
 public:
  StreamCall(const CallEnv* env, CallInfo info) : TurnCall(env, std::move(info), "Stream") {}

  // The engine's.
  void OnStarted(const engine::Started& started) override;
  void OnDelta(engine::Delta delta) override;
  void OnFinished(const engine::Finished& finished) override;
  void OnFailed(const absl::Status& status) override;
  bool Writable() override;
  absl::Duration BlockedSince() override;
  int32_t TakenTokens() override;

 protected:
  // Once, first.
  void Begin(const v1::StreamRequest& request);
  // The operation under way ended.
  void OperationDone(bool ok);

  // Operations of the transport; each ends with OperationDone, but for the two
  // that end the call. `response` stays as it is until then.
  virtual void SendMetadata() = 0;
  virtual void Write(const v1::StreamResponse* response) = 0;
  virtual void WriteAndEnd(const v1::StreamResponse* response) = 0;
  virtual void End(const absl::Status& status) = 0;

 private:
  // Starts the next operation if none is under way.
  void Advance();
  bool WritableLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Belongs to the operation under way.
  v1::StreamResponse response_;

  // Until the initial metadata is sent it counts as an operation under way.
  bool busy_ ABSL_GUARDED_BY(mu_) = true;
  // A write failed: the client is gone, and the rest goes nowhere.
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration busy_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteDuration();
  int32_t writing_tokens_ ABSL_GUARDED_BY(mu_) = 0;
  int32_t taken_tokens_ ABSL_GUARDED_BY(mu_) = 0;
  // What waits, in this order.
  std::optional<engine::Started> started_ ABSL_GUARDED_BY(mu_);
  std::optional<engine::Delta> delta_ ABSL_GUARDED_BY(mu_);
  std::optional<engine::Finished> finished_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> failed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_STREAM_CALL_H_
