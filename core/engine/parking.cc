// Parking: when memory is short, the least important turn gives up its pages and
// keeps its tokens; it resumes once it fits again, computes what is gone once
// more, and goes on with the same tokens.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "core/engine/errors.h"
#include "core/engine/scheduler.h"

namespace tokend::engine {
namespace {

// What a resumed turn yields before it may be parked again.
constexpr int64_t kTokensBetweenParks = 16;

// Parks a running turn without a step or an end between them, beyond which pages
// that should be there cannot be had.
constexpr size_t kMostParksInVain = 4;

// Whether `a`, which started after `b`, is parked before it: the later one,
// unless only the other waits for its reader.
bool GivesWayBefore(const Turn& a, const Turn& b) { return a.paused() || !b.paused(); }

}  // namespace

// In their order, and before anybody new starts. False: one that could go on does
// not fit yet.
bool Scheduler::ResumeParked() {
  for (const auto& parked : running_) {
    Turn& turn = *parked;
    if (turn.ended || !turn.parked()) continue;
    if (!turn.has_place) continue;
    if (!FitsNow(turn)) return false;
    const int64_t most = turn.output_position() + turn.limit.tokens;
    const int64_t known = std::max(turn.output_position(), turn.branch->tokens());
    turn.safe_until = std::min(most, known + kTokensBetweenParks);
    if (turn.usage.computed_tokens == 0) turn.prefilled = turn.branch->computed();
    const bool decode = turn.decoding() && turn.rows_left() == 1;
    turn.timer.Enter(decode ? PhaseTimer::kDecode : PhaseTimer::kPrefill,
                     parts_.clock->Monotonic());
  }
  return true;
}

// Whether `turn`, which holds no pages that it can be sure of, can go on beside
// those that are awake. Then it holds what it can reuse; else its branch is
// parked. Turns that wait for their readers give way.
bool Scheduler::FitsNow(Turn& turn) {
  const auto awake = [&turn](const auto& other) { return other.get() != &turn && other->awake(); };
  const auto paused = [&](const auto& other) { return awake(other) && other->paused(); };
  const bool alone = std::none_of(running_.begin(), running_.end(), awake);
  if (turn.parked()) {
    const bool may_grow = alone || std::any_of(running_.begin(), running_.end(), paused);
    // Matching the prefix costs as much as it is long.
    if (!may_grow && Obtainable(turn) < turn.pages_to_fit) return false;
    turn.branch->MatchPrefix();
  }
  // One that cannot have more than the whole pool was refused.
  if (alone) return true;
  int64_t pages = 0, obtainable = 0;
  while (true) {
    pages = PagesAhead(turn);
    for (const auto& other : running_) {
      if (awake(other)) pages += PagesAhead(*other);
    }
    obtainable = Obtainable(turn);
    if (pages <= obtainable) return true;
    const auto last = std::find_if(running_.rbegin(), running_.rend(), paused);
    if (last == running_.rend()) break;
    Park(**last);
  }
  turn.branch->Park();
  turn.pages_to_fit = Obtainable(turn) + pages - obtainable;
  return false;
}

int64_t Scheduler::PagesAhead(const Turn& turn) const {
  // The input and some output.
  const int64_t output = std::min<int64_t>(
      turn.limit.tokens, std::max<int64_t>(options_.page_tokens, kTokensBetweenParks));
  const int64_t known = std::max(turn.output_position(), turn.branch->tokens());
  return turn.branch->PagesNeeded(known + output, LeastChunk());
}

bool Scheduler::IsSafe(const Turn& turn) const {
  return turn.awake() && !turn.paused() && turn.branch->tokens() < turn.safe_until;
}

// Whether, with the pages for its next rows, `turn` leaves others that just
// resumed what they need until they may be parked again.
bool Scheduler::LeavesRoom(const Turn& turn, int rows) const {
  int64_t reserved = 0;
  int64_t obtainable = std::numeric_limits<int64_t>::max();
  for (const auto& other : running_) {
    if (other.get() == &turn || !IsSafe(*other)) continue;
    reserved += other->branch->PagesNeeded(other->safe_until, LeastChunk());
    obtainable = std::min(obtainable, Obtainable(*other));
  }
  if (reserved == 0) return true;
  const int64_t pages = turn.branch->PagesNeeded(turn.branch->computed() + rows, rows);
  return pages == 0 || pages + reserved <= std::min(obtainable, Obtainable(turn));
}

int64_t Scheduler::Obtainable(const Turn& turn) const {
  return parts_.store->ObtainablePages(turn.request.principal);
}

// Parks the least important turn that may be, so that `turn` may try again. False:
// `turn` does not run in this step. It was parked itself, or, as the last one that
// holds pages, ended, or it waits for turns behind it that just resumed.
bool Scheduler::FreePagesFor(Turn& turn, const absl::Status& cause) {
  Turn* victim = nullptr;
  bool turn_seen = false, others = false, safe_behind = false;
  for (const auto& running : running_) {
    if (!running->awake()) continue;
    turn_seen = turn_seen || running.get() == &turn;
    others = others || running.get() != &turn;
    if (running.get() != &turn && IsSafe(*running)) {
      safe_behind = safe_behind || turn_seen;
    } else if (victim == nullptr || GivesWayBefore(*running, *victim)) {
      victim = running.get();
    }
  }
  TOKEND_CHECK(victim != nullptr);
  const auto most = std::max<size_t>(static_cast<size_t>(options_.max_running), running_.size());
  if (!others || static_cast<size_t>(parks_in_vain_) > kMostParksInVain * most) {
    EndAlone(turn, cause);
    return false;
  }
  if (victim == &turn && safe_behind) return false;
  Park(*victim);
  return victim != &turn;
}

// It has all that can be had: as full as a context can be.
void Scheduler::EndAlone(Turn& turn, const absl::Status& cause) {
  if (!turn.decoding()) return Fail(turn, cause);
  // No token will complete what waits.
  if (auto rest = turn.output.TakeRest()) turn.sink->OnDelta(*std::move(rest));
  Ending ending;
  ending.reason = kv::FinishReason::kContextFull;
  ending.keep = static_cast<int64_t>(turn.output_tokens.size());
  (void)Finish(turn, ending);
}

void Scheduler::Park(Turn& turn) {
  ++parks_;
  ++parks_in_vain_;
  turn.branch->Park();
  turn.pages_to_fit = 0;
  if (turn.timer.phase() != PhaseTimer::kParked) {
    turn.timer.Enter(PhaseTimer::kParked, parts_.clock->Monotonic());
  }
}

}  // namespace tokend::engine
