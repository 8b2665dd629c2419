// The scheduler and the step loop: one thread that packs decode tokens and
// prefill chunks of many requests into steps, draws tokens, and commits or drops
// each turn.
#ifndef TOKEND_CORE_ENGINE_ENGINE_H_
#define TOKEND_CORE_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/observer.h"
#include "core/engine/request.h"
#include "core/kv/session_store.h"
#include "core/ops/backend.h"
#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/tokenizer.h"

namespace tokend::engine {

struct EngineOptions {
  int max_running = 8;           // [1, 32]; turns in a step
  int max_batch_tokens = 2048;   // rows of a step
  int prefill_chunk_tokens = 0;  // 0: as many as step_time_target allows
  int page_tokens = 16;          // the store's; the least that an automatic chunk is cut to
  absl::Duration step_time_target = absl::Milliseconds(50);
  // Beyond those that could run at once: turns that wait to start, or for their readers.
  int max_queued = 64;
  absl::Duration stall_timeout = absl::Seconds(30);
  // So long after its Finished a turn is known to Stop; the newest 65,536 are.
  absl::Duration replay_window = absl::Minutes(2);
  int64_t context_tokens = 0;
  // The model has no positions beyond its context: behind a window, too, no session is
  // longer.
  bool learned_positions = false;
  int vocabulary_size = 0;
};

// Where a turn's events go; one sink a turn. All calls come from the engine
// thread, in order (Started?, Delta*, then one of Finished and Failed), and must
// not block. The turn's place in the session's line and its id are free, its pages as
// well or, on a device that has started the next step by then, quarantined until that
// is over, and it is counted, before Finished or Failed is called.
class TurnSink {
 public:
  virtual ~TurnSink() = default;
  virtual void OnStarted(const Started& started) = 0;
  virtual void OnDelta(Delta delta) = 0;
  virtual void OnFinished(const Finished& finished) = 0;
  virtual void OnFailed(const absl::Status& status) = 0;

  // False while the reader is so far behind that the turn should pause.
  virtual bool Writable() = 0;
  // Since when (monotonic) a write has been under way without being taken;
  // infinite: none is.
  virtual absl::Duration BlockedSince() = 0;
  // Output tokens that the transport took, for CommitMode::kPartial.
  virtual int32_t TakenTokens() = 0;
};

// A consistent view of the engine.
struct EngineSnapshot {
  kv::StoreSnapshot store;
  int running = 0;
  int waiting = 0;
  // Over the last 10 s.
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  int64_t saturated_activations = 0;  // as in ops::StepOutput
};

class Engine {
 public:
  struct Parts {
    ops::Backend* backend;
    kv::SessionStore* store;
    const tokenizer::Tokenizer* tokenizer;
    const tokenizer::ChatTemplate* chat;  // nullptr: the model has none
    base::Clock* clock;
    base::Observer* observer;
  };

  // INVALID_ARGUMENT names an option that is out of its range.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                        const Parts& parts);
  // Cancels what still runs.
  virtual ~Engine() = default;

  // Starts the engine thread. `on_step` is called at least every second, also
  // when idle (the watchdog's heartbeat); `on_fatal` once, when the backend has
  // failed and the process should be restarted.
  virtual void Start(std::function<void()> on_step,
                     std::function<void(const absl::Status&)> on_fatal) = 0;

  // --- Any thread. ---

  // Tokenises on the caller's thread, then queues. After OK (or just before it is
  // returned) the sink gets events until Finished or Failed; it is kept alive
  // until then. Errors as in tokend.v1.GenerationService.Stream; the sink then
  // gets no event. Every call, a refused one too, is told once to
  // Observer::OnRequestEnd.
  virtual absl::Status Submit(Request request, std::shared_ptr<TurnSink> sink) = 0;

  // The client of the turn with this sink is gone: ends the turn, dropping it or,
  // under CommitMode::kPartial and with a token taken, committing it partially.
  // The sink sees Failed with CANCELLED. Ignored for a turn that has ended or that
  // Submit has not seen yet: look for a lost client once more after Submit.
  virtual void Cancel(const TurnSink* sink) = 0;

  // Ends a turn with Finished, INTERRUPTED. `done` is called once, on the engine
  // thread or inside this call: as tokend.v1.GenerationService.StopGeneration. A
  // turn that ended with Failed is NOT_FOUND.
  virtual void Stop(absl::string_view principal, absl::string_view request_id,
                    std::optional<int32_t> keep_output_tokens,
                    std::function<void(absl::StatusOr<Finished>)> done) = 0;

  // A sink became writable again, a write was taken, or a session was deleted.
  virtual void Wake() = 0;

  // Stops admission (UNAVAILABLE, kDraining), ends queued turns at once, lets
  // running ones finish for `timeout`, then cancels them. Returns when none is left.
  virtual void Drain(absl::Duration timeout) = 0;

  virtual EngineSnapshot Snapshot() = 0;
};

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_ENGINE_H_
