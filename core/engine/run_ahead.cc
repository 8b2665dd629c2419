// Steps in flight. A device that draws the tokens itself need not wait for the host: the
// next step is started before this one's tokens are read, and its rows take the place of
// those that are not known yet. A row of a turn that ended meanwhile is thrown away.
#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"
#include "core/engine/scheduler.h"

namespace tokend::engine {

absl::Status Scheduler::SubmitFlight(Flight& flight) {
  const ops::StepBatch batch = flight.batch.Build(draws_on_backend_);
  flight.drawn = !batch.draws.empty();
  flight.submitted = parts_.clock->Monotonic();
  ++submitted_;
  parts_.store->BeginStep();
  return parts_.backend->Submit(batch);
}

absl::Status Scheduler::CollectFlight() {
  Flight& flight = flights_[static_cast<size_t>(collected_ % kMostFlights)];
  TOKEND_ASSIGN_OR_RETURN(const ops::StepOutput output, parts_.backend->Collect());
  ++collected_;
  parts_.store->EndStep();
  // A step that waited behind another took what came after that one's end.
  const absl::Duration now = parts_.clock->Monotonic();
  const absl::Duration start = std::max(flight.submitted, std::exchange(last_collected_, now));
  FinishStep(flight.batch, output, now - start);
  flight.batch.Clear();
  return absl::OkStatus();
}

// Whoever waits for them, nobody does any more.
void Scheduler::AbandonFlights() {
  for (; in_flight() > 0; ++collected_) parts_.store->EndStep();
}

bool Scheduler::WaitsToStart() const {
  const auto may_start = [](const std::unique_ptr<Turn>& turn) {
    return turn->writer == nullptr || turn->writer->ready();
  };
  return FreePlaces() > 0 && std::any_of(waiting_.begin(), waiting_.end(), may_start);
}

// Whether all that could be in a step is in the one in flight, each with a token that
// the backend draws. Whoever waits to start or for memory, and whoever still has a
// prompt to compute, needs a step that is planned.
bool Scheduler::MayRunAhead() {
  if (!runs_ahead_ || in_flight() != 1) return false;
  const Flight& flight = flights_[static_cast<size_t>(collected_ % kMostFlights)];
  if (!flight.drawn || WaitsToStart()) return false;
  const auto goes_on = [](const Turn* turn) {
    return turn != nullptr && !turn->ended && turn->has_place;
  };
  int64_t there = 0;
  for (const StepBatchBuilder::Entry& entry : flight.batch.entries()) {
    if (!entry.decode) return false;
    if (goes_on(entry.turn)) ++there;
  }
  return there == std::count_if(running_.begin(), running_.end(),
                                [&](const auto& turn) { return goes_on(turn.get()); });
}

absl::Status Scheduler::RunAhead() {
  const Flight& flight = flights_[static_cast<size_t>(collected_ % kMostFlights)];
  Flight& next = NextFlight();
  next.batch.Clear();
  for (const StepBatchBuilder::Entry& entry : flight.batch.entries()) {
    Turn* const turn = entry.turn;
    if (turn == nullptr || !turn->has_place) continue;
    // Its limit is reached with the token in flight.
    if (static_cast<int64_t>(turn->output_tokens.size()) + 1 >= turn->limit.tokens) continue;
    if (!LeavesRoom(*turn, 2) || !turn->branch->PrepareAhead()) {
      next.batch.Clear();
      return absl::OkStatus();
    }
    next.batch.AddAhead(turn, entry.logit_row);
  }
  return next.batch.rows() > 0 ? SubmitFlight(next) : absl::OkStatus();
}

}  // namespace tokend::engine
