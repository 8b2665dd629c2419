// Every turn ends here, once: committed or dropped, counted, and told to its sink.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/engine/errors.h"
#include "core/engine/scheduler.h"

namespace tokend::engine {
namespace {

absl::string_view ReasonLabel(kv::FinishReason reason) {
  switch (reason) {
    case kv::FinishReason::kStop:
      return "stop";
    case kv::FinishReason::kEndOfText:
      return "end_of_text";
    case kv::FinishReason::kLength:
      return "length";
    case kv::FinishReason::kContextFull:
      return "context_full";
    case kv::FinishReason::kTimeBudget:
      return "time_budget";
    case kv::FinishReason::kInterrupted:
      return "interrupted";
    case kv::FinishReason::kUnspecified:
      break;
  }
  return "unspecified";
}

// Under CommitMode::kPartial these still commit: the turn is lost, not wrong.
bool KeepsPart(const absl::Status& status) {
  switch (base::GetErrorReason(status)) {
    case base::ErrorReason::kDeadlinePassed:
    case base::ErrorReason::kReaderTooSlow:
    case base::ErrorReason::kDraining:
      return true;
    default:
      return absl::IsCancelled(status);
  }
}

}  // namespace

absl::StatusOr<Finished> Scheduler::Finish(Turn& turn, const Ending& ending) {
  Finished finished;
  finished.reason = ending.reason;
  finished.stop_token_id = ending.stop_token;
  if (turn.output.match().has_value()) finished.stop_string = turn.output.matched_string();
  const bool started = turn.timer.phase() != PhaseTimer::kQueue;
  if (started) {
    const kv::BranchStats stats = turn.branch->stats();
    turn.usage.output_tokens = static_cast<int32_t>(turn.output_tokens.size());
    turn.usage.cached_tokens = stats.cached_tokens;
    turn.usage.evicted_tokens = stats.evicted_tokens;
    turn.usage.recomputed_tokens = stats.recomputed_tokens;
    finished.usage = turn.usage;
  }
  absl::StatusOr<Finished> outcome;
  if (started && ending.keep.has_value()) {
    auto version = Commit(turn, *ending.keep, ending.reason);
    if (version.ok()) {
      finished.version = *std::move(version);
      outcome = std::move(finished);
    } else {
      outcome = version.status();
    }
  } else {
    outcome = std::move(finished);
  }
  return Close(turn, std::move(outcome));
}

void Scheduler::Fail(Turn& turn, const absl::Status& status) {
  const auto& session = turn.request.session;
  const bool partial =
      session.has_value() && session->commit == CommitMode::kPartial && KeepsPart(status);
  if (partial && turn.decoding()) {
    const int32_t taken = std::min(turn.sink->TakenTokens(), turn.written());
    // The turn fails in any case; a version that cannot be made changes nothing.
    if (taken > 0) (void)Commit(turn, taken, kv::FinishReason::kUnspecified);
  }
  (void)Close(turn, status);
}

absl::StatusOr<std::string> Scheduler::Commit(Turn& turn, int64_t keep, kv::FinishReason reason) {
  if (turn.writer == nullptr || turn.request.session->commit == CommitMode::kNever) return "";
  kv::CommitRequest request;
  request.tokens = turn.output_position() + keep;
  request.request_id = turn.request.id;
  request.reason = reason;
  request.conversation = FinalConversation(turn, keep);
  TOKEND_ASSIGN_OR_RETURN(const kv::VersionInfo version,
                          parts_.store->Commit(turn.writer.get(), std::move(turn.branch), request));
  return absl::StrCat("sessions/", version.session_id, "/versions/",
                      static_cast<int64_t>(version.number));
}

kv::Conversation Scheduler::FinalConversation(Turn& turn, int64_t keep) {
  if (!turn.is_chat) return turn.branch->conversation();
  auto messages = std::make_shared<std::vector<kv::ChatMessage>>(std::move(turn.conversation));
  if (!turn.reply_opened) return messages;
  kv::ChatMessage& reply = messages->back();
  reply.end = turn.output_position() + keep;
  std::string text;
  for (int64_t i = 0; i < keep; ++i) {
    const int32_t token = turn.output_tokens[i];
    // Ends of turn, and what the template closes the reply with, are no text.
    const bool last = i + 1 == keep;
    reply.closed = last && parts_.tokenizer->IsEndOfText(token);
    if (last && i >= turn.written()) break;
    const absl::string_view bytes = parts_.tokenizer->TokenBytes(token);
    text.append(bytes.data(), bytes.size());
  }
  if (turn.output.match().has_value()) {
    text.resize(std::min(text.size(), turn.output.match()->begin));
  }
  reply.text = std::make_shared<const std::string>(std::move(text));
  return messages;
}

absl::StatusOr<Finished> Scheduler::Close(Turn& turn, absl::StatusOr<Finished> outcome) {
  turn.ended = true;
  for (Flight& flight : flights_) flight.batch.Forget(&turn);
  ++closed_turns_;
  parks_in_vain_ = 0;
  // What the turn held is free before anybody hears of its end.
  turn.branch.reset();
  turn.writer.reset();
  const absl::Duration now = parts_.clock->Monotonic();
  const Timings timings = turn.timer.Finish(now);
  const std::string label =
      outcome.ok() ? std::string(ReasonLabel(outcome->reason)) : FailureLabel(outcome.status());
  parts_.observer->OnRequestEnd(label, timings.total);
  std::optional<Finished> finished;
  if (outcome.ok()) {
    outcome->timings = timings;
    finished = *outcome;
  }
  registry_.OnEnded(turn.key, finished, timings.total - timings.queue, now);
  if (finished.has_value()) {
    turn.sink->OnFinished(*finished);
  } else {
    turn.sink->OnFailed(outcome.status());
  }
  registry_.OnToldEnd();
  return outcome;
}

}  // namespace tokend::engine
