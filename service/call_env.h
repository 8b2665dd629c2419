// What every RPC works with.
#ifndef TOKEND_SERVICE_CALL_ENV_H_
#define TOKEND_SERVICE_CALL_ENV_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/observer.h"
#include "core/engine/engine.h"
#include "core/kv/session_store.h"
#include "core/tokenizer/tokenizer.h"
#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "service/auth.h"
#include "service/convert_turn.h"
#include "tokend/v1/model.pb.h"

namespace tokend::service {

// A model that is loaded and warm. Nothing is owned.
struct Serving {
  engine::Engine* engine = nullptr;
  kv::SessionStore* store = nullptr;
  const tokenizer::Tokenizer* tokenizer = nullptr;
  TurnRules rules;
  std::string device;           // as BackendInfo says it
  int64_t huge_page_bytes = 0;  // of the weights
};

// What a call says of itself besides its request.
struct CallInfo {
  std::optional<std::string> authorization;            // the header's value
  absl::Duration deadline = absl::InfiniteDuration();  // on Clock::Monotonic()
};

// Shared by the services; outlives the server. Thread-safe.
class CallEnv {
 public:
  struct Parts {
    const Authenticator* auth = nullptr;
    base::Clock* clock = nullptr;
    base::Observer* observer = nullptr;
    std::string server_version;  // "1.4.0 (release)"
  };

  explicit CallEnv(const Parts& parts);

  base::Clock* clock() const { return parts_.clock; }
  base::Observer* observer() const { return parts_.observer; }
  const std::string& server_version() const { return parts_.server_version; }
  // Differs after a restart.
  const std::string& boot_id() const { return boot_id_; }
  absl::Duration uptime() const { return clock()->Monotonic() - start_; }

  CallInfo InfoOf(const grpc::CallbackServerContext& context) const;
  // UNAUTHENTICATED.
  absl::StatusOr<std::string> Principal(const CallInfo& info) const {
    return parts_.auth->Authenticate(info.authorization);
  }

  // From now on calls are served. `serving` outlives the server. Once.
  void Publish(const Serving* serving) { serving_.store(serving, std::memory_order_release); }
  // UNAVAILABLE (MODEL_LOADING) until Publish.
  absl::StatusOr<const Serving*> serving() const;
  // nullptr until Publish.
  const Serving* serving_or_null() const { return serving_.load(std::memory_order_acquire); }

  // What GetModel shows.
  void SetModel(const v1::Model& model);
  v1::Model model() const;

 private:
  const Parts parts_;
  const std::string boot_id_;
  const absl::Duration start_;
  std::atomic<const Serving*> serving_ = nullptr;
  mutable base::Mutex mu_;
  v1::Model model_ ABSL_GUARDED_BY(mu_);
};

// Who calls and what serves the call.
struct Caller {
  std::string principal;
  const Serving* serving = nullptr;
};

// The three checks in front of every call: caller, fields, model. `request` may
// hold no field that this server does not know.
absl::StatusOr<Caller> Enter(const CallEnv& env, const CallInfo& info,
                             const google::protobuf::Message& request);

// A call that answers at once: `handle(caller)` fills the response.
grpc::ServerUnaryReactor* AnswerNow(
    const CallEnv& env, grpc::CallbackServerContext* context,
    const google::protobuf::Message& request,
    const std::function<absl::Status(const Caller& caller)>& handle);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_CALL_ENV_H_
