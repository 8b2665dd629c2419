// From the queue to running.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/engine/errors.h"
#include "core/engine/scheduler.h"
#include "core/kv/errors.h"

namespace tokend::engine {
namespace {

// Sessions may be deleted or used up by then.
constexpr absl::Duration kPinRetry = absl::Seconds(1);

}  // namespace

void Scheduler::StartWaiting() {
  // Or a parked turn might never find enough.
  if (!ResumeParked()) return;
  for (size_t i = 0; i < waiting_.size();) {
    if (FreePlaces() <= 0) return;
    Turn& turn = *waiting_[i];
    // A turn that waits for its session's writer holds up nobody else.
    if (turn.writer != nullptr && !turn.writer->ready()) {
      ++i;
      continue;
    }
    const absl::Status opened = turn.branch != nullptr ? absl::OkStatus() : Open(turn);
    if (!opened.ok()) {
      if (IsBackendFailure(opened)) return Break(opened);
      Fail(turn, opened);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    // One that waits for memory holds up all behind it, or it might wait for ever.
    if (!FitsNow(turn)) return;
    running_.push_back(std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    Start(turn, parts_.clock->Monotonic());
  }
}

absl::Status Scheduler::Open(Turn& turn) {
  if (turn.writer != nullptr) {
    TOKEND_ASSIGN_OR_RETURN(
        turn.branch,
        parts_.store->Checkout(turn.writer.get(), turn.request.session->from_position));
  } else {
    turn.branch = parts_.store->CheckoutEphemeral(turn.request.principal);
  }
  kv::Branch& branch = *turn.branch;
  InputBase base;
  base.tokens = branch.base_tokens();
  base.conversation = branch.conversation();
  std::vector<int32_t> tail;
  branch.ReadTokens(std::max<int64_t>(0, base.tokens - kTailTokens), base.tokens, &tail);
  base.tail = tail;
  TOKEND_ASSIGN_OR_RETURN(PlacedInput placed, PlaceInput(parts_.chat, turn.prepared, base));
  TOKEND_RETURN_IF_ERROR(FitInput(turn, base, &placed));
  branch.Append(placed.tokens);
  branch.MatchPrefix();
  turn.conversation = std::move(placed.conversation);
  turn.is_chat = placed.is_chat;
  turn.reply_opened = placed.reply_opened;
  return absl::OkStatus();
}

absl::Status Scheduler::FitInput(Turn& turn, const InputBase& base, PlacedInput* placed) {
  const std::optional<int32_t> most = turn.request.stop.max_output_tokens;
  const int64_t least_output = most == 0 ? 0 : 1;
  const int64_t context = options_.context_tokens;
  const kv::Branch& branch = *turn.branch;
  const bool commits = turn.writer != nullptr && turn.request.session->commit != CommitMode::kNever;
  const kv::Writer* const writer = commits ? turn.writer.get() : nullptr;
  const kv::TurnRoom room = parts_.store->RoomFor(branch, writer);
  // Behind a window a session may be longer than the context, but no turn.
  const bool windowed = branch.retention().kind == kv::RetentionPolicy::Kind::kSlidingWindow &&
                        !options_.learned_positions;
  const int64_t used = windowed ? 0 : base.tokens;
  // Beyond which no turn comes.
  const int64_t end = base.tokens + static_cast<int64_t>(placed->tokens.size()) + context;
  const int64_t pool = PositionsWithin(branch, room, end);
  const auto needed = [&] {
    return used + static_cast<int64_t>(placed->tokens.size()) + least_output;
  };
  // The last token drawn needs no KV.
  const int64_t most_positions = windowed ? context : std::min(context, pool + 1);
  if (turn.request.input_overflow == InputOverflow::kDropOldest) {
    const int64_t room_left = most_positions - used - least_output;
    if (needed() > most_positions && room_left > 0) {
      DropOldest(room_left, base, turn.prepared.bos, placed);
    }
  }
  if (needed() > context) return ContextFull(context, needed());
  const int64_t positions = base.tokens + static_cast<int64_t>(placed->tokens.size());
  if (positions > pool) return NoRoom(turn, positions, room);
  turn.usage.base_tokens = base.tokens;
  turn.usage.input_tokens = static_cast<int32_t>(placed->tokens.size());
  turn.usage.dropped_tokens = placed->dropped;
  if (turn.output_position() == 0) {
    return base::InvalidField("turn", "the input is empty and there is nothing before it");
  }
  const int64_t in_pool = pool + 1 - turn.output_position();
  const int64_t left =
      windowed ? std::min(context, in_pool) : most_positions - turn.output_position();
  if (most.has_value() && *most <= left) {
    turn.limit = {*most, kv::FinishReason::kLength};
  } else {
    const bool endless = windowed && left == context;
    turn.limit = {left, endless ? kv::FinishReason::kLength : kv::FinishReason::kContextFull};
  }
  const int64_t last = turn.output_position() + std::max<int64_t>(0, turn.limit.tokens - 1);
  return parts_.store->Reserve(turn.branch.get(), writer, room,
                               branch.PagesBesideHead(last, LeastChunk()),
                               branch.PagesInAll(last, LeastChunk()));
}

// Why `positions` positions do not fit.
absl::Status Scheduler::NoRoom(const Turn& turn, int64_t positions,
                               const kv::TurnRoom& room) const {
  int64_t needed = turn.branch->PagesInAll(positions, LeastChunk());
  if (room.pin_pages.has_value() && needed > *room.pin_pages) {
    const int64_t others = *room.quota_pages - *room.pin_pages;
    return kv::QuotaExceeded(turn.request.principal, others + needed, *room.quota_pages);
  }
  needed = turn.branch->PagesBesideHead(positions, LeastChunk());
  if (needed > room.total_pages) {
    return KvPoolFull("base and input are larger than the whole KV pool", std::nullopt);
  }
  return KvPoolFull("base and input do not fit beside pinned sessions and quotas", kPinRetry);
}

void Scheduler::Start(Turn& turn, absl::Duration now) {
  if (turn.penalties.wants_context()) {
    const int64_t end = turn.branch->tokens();
    tokens_.clear();
    turn.branch->ReadTokens(std::max<int64_t>(0, end - ops::kPenaltyWindowTokens), end, &tokens_);
    turn.penalties.AddContext(tokens_);
  }
  turn.has_place = true;
  turn.prepared = {};
  turn.branch->Reserve(turn.output_position() + turn.limit.tokens);
  turn.output_tokens.reserve(static_cast<size_t>(turn.limit.tokens));
  turn.prefilled = turn.branch->computed();
  turn.timer.Enter(PhaseTimer::kPrefill, now);
  parts_.observer->OnQueue(turn.timer.Total(now));
  registry_.OnStarted(turn.key);
  Started started;
  started.base_version = turn.branch->base_version_name();
  started.seed = turn.request.sampling.seed;
  if (turn.writer != nullptr && !turn.writer->fork_id().empty()) {
    started.fork_name = absl::StrCat("sessions/", turn.writer->fork_id());
  }
  started.output_position = turn.output_position();
  turn.sink->OnStarted(started);
}

// A chunk can be cut to a page where memory is short, so admission counts no more.
int64_t Scheduler::LeastChunk() const { return options_.page_tokens; }

int64_t Scheduler::PositionsWithin(const kv::Branch& branch, const kv::TurnRoom& room,
                                   int64_t most) const {
  const auto fits = [&](int64_t positions) {
    const int64_t pinned = branch.PagesInAll(positions, LeastChunk());
    return branch.PagesBesideHead(positions, LeastChunk()) <= room.pages &&
           pinned <= room.pin_pages.value_or(pinned);
  };
  int64_t low = 0;
  int64_t high = most;
  if (fits(high)) return high;
  while (low + 1 < high) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace tokend::engine
