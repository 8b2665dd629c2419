// What Generate and Stream have in common: admission, cancelling, the log line.
#ifndef TOKEND_SERVICE_TURN_CALL_H_
#define TOKEND_SERVICE_TURN_CALL_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "core/engine/engine.h"
#include "google/protobuf/message.h"
#include "service/call_env.h"
#include "service/convert_output.h"
#include "tokend/v1/generation.pb.h"

namespace tokend::service {

// A turn's RPC as the sink of its turn; what carries its messages is a subclass's.
// The transport's threads and the engine's meet here, under `mu_`; neither is
// called with it held.
//
// Lifetime: the transport holds it through KeepAlive until it is done with it, the
// engine until it has told Finished or Failed.
class TurnCall : public engine::TurnSink, public std::enable_shared_from_this<TurnCall> {
 public:
  TurnCall(const CallEnv* env, CallInfo info, const char* method);
  // Takes the lock once more: what the engine's thread did to this object is then
  // ordered before its end on the transport's.
  ~TurnCall() override;

 protected:
  void KeepAlive() { self_ = shared_from_this(); }
  void Release() { self_.reset(); }

  // Checks and submits, `check` being the call's own part of it; on OK events
  // arrive, perhaps already. Errors are counted and logged.
  absl::Status Admit(const google::protobuf::Message& request, const v1::Turn& turn,
                     const std::function<absl::Status()>& check);
  // The RPC is cancelled, past its deadline, or its connection is lost.
  void ClientGone();
  // The turn's end was told: nothing is cancelled from now on.
  void TurnEnded(const absl::Status& status, const engine::Finished* finished);

  void Wake() { caller_.serving->engine->Wake(); }
  absl::Duration Now() const { return env_->clock()->Monotonic(); }
  const OutputContext& output() const { return output_; }

  base::Mutex mu_;

 private:
  absl::StatusOr<engine::Request> Prepare(const google::protobuf::Message& request,
                                          const v1::Turn& turn,
                                          const std::function<absl::Status()>& check);

  const CallEnv* const env_;
  const CallInfo info_;
  const char* const method_;
  const absl::Duration start_;
  // Set before the first event, constant afterwards.
  Caller caller_;
  OutputContext output_;
  std::string session_;

  bool admitted_ ABSL_GUARDED_BY(mu_) = false;
  bool client_gone_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<TurnCall> self_;
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_TURN_CALL_H_
