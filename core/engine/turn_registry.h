#ifndef TOKEND_CORE_ENGINE_TURN_REGISTRY_H_
#define TOKEND_CORE_ENGINE_TURN_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/engine/engine.h"
#include "core/engine/turn.h"

namespace tokend::engine {

using StopCallback = std::function<void(absl::StatusOr<Finished>)>;

// What other threads ask of the engine thread, in order.
struct SubmitCommand {
  std::unique_ptr<Turn> turn;
};
struct CancelCommand {
  std::string key;
};
struct StopCommand {
  std::string key;
  std::string request_id;
  std::optional<int32_t> keep_output_tokens;
  StopCallback done;
};
using Command = std::variant<SubmitCommand, CancelCommand, StopCommand>;

// Where callers and the engine thread meet: the turns that are known by name, how
// many wait and run, and the commands on their way. Thread-safe.
class TurnRegistry {
 public:
  struct Limits {
    int max_running = 0;
    int max_queued = 0;
    absl::Duration replay_window;
  };
  struct Counts {
    int waiting = 0;
    int running = 0;
  };

  explicit TurnRegistry(const Limits& limits) : limits_(limits) {}

  // --- Any thread. ---

  // Takes a place in the queue and the name, before the input is looked at.
  // kDraining, kRequestIdReused, kQueueFull.
  absl::Status Reserve(const std::string& key, absl::string_view request_id, const TurnSink* sink);
  // Gives both back: the turn cannot be had.
  void Abandon(const std::string& key);
  // Hands a reserved turn to the engine thread. kDraining (the turn is then gone
  // and abandoned).
  absl::Status Push(std::unique_ptr<Turn> turn);

  void Cancel(const TurnSink* sink);
  // A turn that has ended is answered at once.
  void Stop(StopCommand command, absl::Duration now);

  // No turn is admitted from here on. Waiting and running ones must end, those
  // running at `deadline` (monotonic) at the latest.
  void BeginDrain(absl::Duration deadline);
  std::optional<absl::Duration> drain_deadline();
  // Until every turn's sink has heard of its end.
  void WaitUntilEmpty();

  Counts counts();
  void Wake();

  // --- Engine thread. ---

  std::vector<Command> TakeCommands();
  // Returns once something has happened since the last call, or after `timeout`.
  void Wait(absl::Duration timeout);

  void OnStarted(const std::string& key);
  // `finished`: how it ended, remembered for the replay window; absent: it failed.
  void OnEnded(const std::string& key, const std::optional<Finished>& finished, absl::Duration ran,
               absl::Duration now);
  // The sink has heard of it.
  void OnToldEnd();
  std::optional<Finished> FindEnded(const std::string& key, absl::Duration now);

 private:
  struct Active {
    const TurnSink* sink = nullptr;
    bool pushed = false;
    bool running = false;
    std::vector<Command> deferred;  // came before it was pushed
  };
  struct Ended {
    Finished finished;
    absl::Duration at;
  };

  void AddCommand(const std::string& key, Command command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetOld(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Duration RetryAfter() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  base::Mutex mu_;
  base::CondVar changed_;  // commands_ or woken_
  base::CondVar emptied_;
  absl::flat_hash_map<std::string, Active> active_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const TurnSink*, std::string> by_sink_ ABSL_GUARDED_BY(mu_);
  Counts counts_ ABSL_GUARDED_BY(mu_);
  int open_ ABSL_GUARDED_BY(mu_) = 0;  // active ones, and those that end just now
  std::vector<Command> commands_ ABSL_GUARDED_BY(mu_);
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Duration> drain_deadline_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Ended> ended_ ABSL_GUARDED_BY(mu_);
  // Keys of ended_ by time; one that ended again since is there twice.
  std::deque<std::pair<absl::Duration, std::string>> ended_order_ ABSL_GUARDED_BY(mu_);
  // Moving average of how long turns ran.
  absl::Duration typical_run_ ABSL_GUARDED_BY(mu_) = absl::Seconds(1);
};

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_TURN_REGISTRY_H_
