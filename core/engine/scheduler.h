#ifndef TOKEND_CORE_ENGINE_SCHEDULER_H_
#define TOKEND_CORE_ENGINE_SCHEDULER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/engine/engine.h"
#include "core/engine/rate_window.h"
#include "core/engine/step_batch.h"
#include "core/engine/step_cost.h"
#include "core/engine/step_plan.h"
#include "core/engine/turn.h"
#include "core/engine/turn_registry.h"
#include "core/sampling/sampler.h"

namespace tokend::engine {

// The engine without its thread: whoever calls the second half of the methods is
// the engine thread.
class Scheduler {
 public:
  // The options are valid.
  Scheduler(const EngineOptions& options, const Engine::Parts& parts);
  ~Scheduler();

  // --- Any thread; as in Engine. ---

  absl::Status Submit(Request request, std::shared_ptr<TurnSink> sink);
  void Cancel(const TurnSink* sink) { registry_.Cancel(sink); }
  void Stop(absl::string_view principal, absl::string_view request_id,
            std::optional<int32_t> keep_output_tokens, StopCallback done);
  void Wake() { registry_.Wake(); }
  void BeginDrain(absl::Duration timeout);
  void WaitUntilEmpty() { registry_.WaitUntilEmpty(); }
  EngineSnapshot Snapshot();

  // --- Engine thread. ---

  // Takes what came from other threads, ends what is over, starts what can start,
  // and runs one step; where the backend lets it run ahead, the next one has started
  // before this one's tokens are read. False: there is nothing to do until IdleTime(),
  // or until somebody calls. kBackendFailed, once: all turns were failed, and no step is run
  // any more.
  absl::StatusOr<bool> StepOnce();
  // How long there will be nothing to do if nobody calls; at most a second.
  absl::Duration IdleTime();
  // Returns once somebody has called since the last time, or after `timeout`.
  void Wait(absl::Duration timeout) { registry_.Wait(timeout); }
  // Fails what is left.
  void Shutdown();
  // How often a turn gave up its pages to another so far.
  int64_t parks() const { return parks_; }

 private:
  struct Ending {
    kv::FinishReason reason = kv::FinishReason::kUnspecified;
    std::optional<int32_t> stop_token;
    // Output tokens that the session keeps; absent: nothing of the turn.
    std::optional<int64_t> keep;
  };

  // scheduler.cc
  absl::Status TrySubmit(Request request, std::shared_ptr<TurnSink> sink, absl::Duration now);
  absl::Status CheckRequest(const Request& request) const;
  void TakeCommands();
  void Apply(SubmitCommand& command);
  void Apply(CancelCommand& command);
  void Apply(StopCommand& command);
  Turn* Find(const std::string& key);
  void EndOverdue(absl::Duration now);
  void EndForDrain(absl::Duration now);
  void Break(const absl::Status& cause);
  void FailAll(const absl::Status& running, const absl::Status& waiting);
  void Sweep();

  // start_turn.cc: from the queue to running.
  void StartWaiting();
  absl::Status Open(Turn& turn);
  absl::Status FitInput(Turn& turn, const InputBase& base, PlacedInput* placed);
  void Start(Turn& turn, absl::Duration now);
  // How many positions, at most `most`, the branch can have there.
  int64_t PositionsWithin(const kv::Branch& branch, const kv::TurnRoom& room, int64_t most) const;
  absl::Status NoRoom(const Turn& turn, int64_t positions, const kv::TurnRoom& room) const;
  int64_t LeastChunk() const;

  // parking.cc: who gives way when memory is short, and who comes back.
  bool ResumeParked();
  bool FitsNow(Turn& turn);
  int64_t PagesAhead(const Turn& turn) const;
  int64_t Obtainable(const Turn& turn) const;
  bool IsSafe(const Turn& turn) const;
  bool LeavesRoom(const Turn& turn, int rows) const;
  bool FreePagesFor(Turn& turn, const absl::Status& cause);
  void EndAlone(Turn& turn, const absl::Status& cause);
  void Park(Turn& turn);

  // A step that was submitted and not yet collected.
  struct Flight {
    StepBatchBuilder batch;
    bool drawn = false;  // the backend draws its tokens
    absl::Duration submitted;
  };
  static constexpr int kMostFlights = 2;

  // run_ahead.cc: steps in flight.
  int in_flight() const { return static_cast<int>(submitted_ - collected_); }
  Flight& NextFlight() { return flights_[static_cast<size_t>(submitted_ % kMostFlights)]; }
  bool WaitsToStart() const;
  bool MayRunAhead();
  absl::Status RunAhead();
  absl::Status SubmitFlight(Flight& flight);
  absl::Status CollectFlight();
  void AbandonFlights();

  // run_step.cc: one step.
  void Plan();
  void PauseSlowReaders(absl::Duration now);
  int FreePlaces() const;
  absl::Status SubmitNext();
  absl::Status Prepare(StepBatchBuilder* batch);
  absl::Status PrepareTurn(Turn& turn, int* rows);
  void FinishStep(const StepBatchBuilder& batch, const ops::StepOutput& output,
                  absl::Duration took);
  void FinishPrefillRows(Turn& turn, int rows);
  void DrawToken(Turn& turn, absl::Span<const float> logits, absl::Duration now);
  void AddToken(Turn& turn, int32_t token, std::optional<TokenLogprob> logprob, absl::Duration now);
  void TakeToken(Turn& turn, int32_t token, std::optional<TokenLogprob> logprob);

  // end_turn.cc: every turn ends in one of these.
  absl::StatusOr<Finished> Finish(Turn& turn, const Ending& ending);
  void Fail(Turn& turn, const absl::Status& status);
  absl::StatusOr<std::string> Commit(Turn& turn, int64_t keep, kv::FinishReason reason);
  kv::Conversation FinalConversation(Turn& turn, int64_t tokens);
  // Returns the outcome with its timings, as the sink hears it.
  absl::StatusOr<Finished> Close(Turn& turn, absl::StatusOr<Finished> outcome);

  const EngineOptions options_;
  const Engine::Parts parts_;
  const int vocabulary_size_;  // tokens that may be drawn or sent
  // Where the backend knows how, and knows of no other tokens.
  const bool draws_on_backend_;
  const bool runs_ahead_;
  TurnRegistry registry_;
  RateWindow rates_;
  std::atomic<int64_t> saturated_activations_ = 0;

  // Engine thread only.
  std::deque<std::unique_ptr<Turn>> waiting_;   // by arrival
  std::vector<std::unique_ptr<Turn>> running_;  // by start
  sampling::Sampler sampler_;
  StepCost cost_;
  std::array<Flight, kMostFlights> flights_;
  int64_t submitted_ = 0;  // steps
  int64_t collected_ = 0;
  absl::Duration last_collected_ = -absl::InfiniteDuration();
  // Scratch, so that a step takes no memory.
  std::vector<int32_t> tokens_;
  std::vector<StepDemand> demands_;  // of running_
  std::vector<int> rows_;            // of running_
  int64_t closed_turns_ = 0;
  int64_t parks_ = 0;
  int parks_in_vain_ = 0;                // since a step ran or a turn ended
  std::optional<absl::Status> failure_;  // of the backend
  bool failure_told_ = false;
};

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_SCHEDULER_H_
