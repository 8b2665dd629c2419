#include "core/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/engine/errors.h"

namespace tokend::engine {
namespace {

// How often a turn that nothing announces is looked after: a session deleted, a
// reader that became fast again without a call of Wake.
constexpr absl::Duration kPoll = absl::Milliseconds(100);

kv::WriteIntent ToIntent(const Request& request) {
  const SessionTarget& target = *request.session;
  kv::WriteIntent intent;
  intent.principal = request.principal;
  intent.session_id = target.id;
  intent.allow_missing = target.allow_missing;
  if (target.allow_missing) intent.spec_if_missing = target.spec_if_missing;
  intent.expected_version = target.expected_version;
  switch (target.on_conflict) {
    case OnConflict::kQueue:
      intent.on_conflict = kv::WriteIntent::OnConflict::kQueue;
      break;
    case OnConflict::kAbort:
      intent.on_conflict = kv::WriteIntent::OnConflict::kAbort;
      break;
    case OnConflict::kFork:
      intent.on_conflict = kv::WriteIntent::OnConflict::kFork;
      break;
  }
  return intent;
}

}  // namespace

Scheduler::Scheduler(const EngineOptions& options, const Engine::Parts& parts)
    : options_(options),
      parts_(parts),
      vocabulary_size_(std::min(options.vocabulary_size, parts.tokenizer->vocabulary_size())),
      draws_on_backend_(parts.backend->info().draws_tokens &&
                        vocabulary_size_ == options.vocabulary_size),
      runs_ahead_(draws_on_backend_ && parts.backend->info().steps_in_flight >= kMostFlights),
      registry_({options.max_running, options.max_queued, options.replay_window}) {}

Scheduler::~Scheduler() { Shutdown(); }

absl::Status Scheduler::Submit(Request request, std::shared_ptr<TurnSink> sink) {
  const absl::Duration admitted = parts_.clock->Monotonic();
  absl::Status status = TrySubmit(std::move(request), std::move(sink), admitted);
  if (!status.ok()) {
    parts_.observer->OnRequestEnd(FailureLabel(status), parts_.clock->Monotonic() - admitted);
  }
  return status;
}

absl::Status Scheduler::TrySubmit(Request request, std::shared_ptr<TurnSink> sink,
                                  absl::Duration now) {
  TOKEND_RETURN_IF_ERROR(CheckRequest(request));
  if (now >= request.deadline) return DeadlinePassed();
  auto turn = std::make_unique<Turn>(std::move(request), std::move(sink), parts_.tokenizer, now);
  TOKEND_RETURN_IF_ERROR(registry_.Reserve(turn->key, turn->request.id, turn->sink.get()));
  auto prepared = PrepareInput(*parts_.tokenizer, parts_.chat, turn->request);
  if (!prepared.ok()) {
    registry_.Abandon(turn->key);
    return prepared.status();
  }
  turn->prepared = *std::move(prepared);
  turn->request.input = TokenInput{};
  if (turn->request.session.has_value()) {
    auto writer = parts_.store->Admit(ToIntent(turn->request));
    if (!writer.ok()) {
      registry_.Abandon(turn->key);
      return writer.status();
    }
    turn->writer = *std::move(writer);
  }
  return registry_.Push(std::move(turn));
}

absl::Status Scheduler::CheckRequest(const Request& request) const {
  for (const auto& [token, bias] : request.sampling.logit_bias) {
    if (token < 0 || token >= vocabulary_size_) {
      return base::InvalidField(
          "turn.sampling.logit_bias",
          absl::StrCat("token ", token, " is not in [0, ", vocabulary_size_, ")"));
    }
  }
  return absl::OkStatus();
}

void Scheduler::Stop(absl::string_view principal, absl::string_view request_id,
                     std::optional<int32_t> keep_output_tokens, StopCallback done) {
  registry_.Stop({TurnKey(principal, request_id), std::string(request_id), keep_output_tokens,
                  std::move(done)},
                 parts_.clock->Monotonic());
}

void Scheduler::BeginDrain(absl::Duration timeout) {
  registry_.BeginDrain(parts_.clock->Monotonic() + timeout);
}

EngineSnapshot Scheduler::Snapshot() {
  EngineSnapshot snapshot;
  snapshot.store = parts_.store->Snapshot();
  const TurnRegistry::Counts counts = registry_.counts();
  snapshot.running = counts.running;
  snapshot.waiting = counts.waiting;
  const RateWindow::Rates rates = rates_.Get(parts_.clock->Monotonic());
  snapshot.prefill_tokens_per_second = rates.prefill;
  snapshot.decode_tokens_per_second = rates.decode;
  snapshot.saturated_activations = saturated_activations_;
  return snapshot;
}

absl::StatusOr<bool> Scheduler::StepOnce() {
  const int64_t ended_before = closed_turns_ + parks_;
  if (!failure_.has_value()) parts_.store->Maintain();
  TakeCommands();
  const absl::Duration now = parts_.clock->Monotonic();
  EndOverdue(now);
  EndForDrain(now);
  PauseSlowReaders(now);
  Sweep();
  absl::Status status;
  if (in_flight() == 0) {
    StartWaiting();
    Sweep();
    status = SubmitNext();
  }
  if (status.ok() && MayRunAhead()) status = RunAhead();
  const bool ran = in_flight() > 0;
  if (status.ok() && ran) status = CollectFlight();
  if (!status.ok()) Break(status);
  Sweep();
  if (failure_.has_value() && !std::exchange(failure_told_, true)) return *failure_;
  // Where a turn has ended or given way, another may be able to go on.
  return ran || closed_turns_ + parks_ != ended_before;
}

void Scheduler::TakeCommands() {
  for (Command& command : registry_.TakeCommands()) {
    std::visit([this](auto& which) { Apply(which); }, command);
  }
}

void Scheduler::Apply(SubmitCommand& command) { waiting_.push_back(std::move(command.turn)); }

void Scheduler::Apply(CancelCommand& command) {
  if (Turn* turn = Find(command.key); turn != nullptr) Fail(*turn, ClientGone());
}

void Scheduler::Apply(StopCommand& command) {
  Turn* turn = Find(command.key);
  if (turn == nullptr) {
    registry_.Stop(std::move(command), parts_.clock->Monotonic());
    return;
  }
  const std::optional<int32_t> keep = command.keep_output_tokens;
  const auto& session = turn->request.session;
  if (keep.has_value() && session.has_value() && session->commit == CommitMode::kNever) {
    command.done(base::InvalidField("keep_output_tokens", "the turn's commit mode is NEVER"));
    return;
  }
  if (keep.has_value() && *keep < 0) {
    command.done(base::InvalidField("keep_output_tokens", "is negative"));
    return;
  }
  if (keep.value_or(0) > turn->written()) {
    command.done(KeepsTooMuch(*keep, turn->written()));
    return;
  }
  Ending ending;
  ending.reason = kv::FinishReason::kInterrupted;
  ending.keep = keep;
  command.done(Finish(*turn, ending));
}

Turn* Scheduler::Find(const std::string& key) {
  const auto is_it = [&key](const std::unique_ptr<Turn>& turn) {
    return !turn->ended && turn->key == key;
  };
  const auto waiting = std::find_if(waiting_.begin(), waiting_.end(), is_it);
  if (waiting != waiting_.end()) return waiting->get();
  const auto running = std::find_if(running_.begin(), running_.end(), is_it);
  return running != running_.end() ? running->get() : nullptr;
}

void Scheduler::EndOverdue(absl::Duration now) {
  const auto check = [&](Turn& turn) {
    if (turn.ended) return;
    if (now >= turn.request.deadline) {
      Fail(turn, DeadlinePassed());
    } else if (turn.writer != nullptr && !turn.writer->status().ok()) {
      Fail(turn, turn.writer->status());
    }
  };
  for (const auto& turn : waiting_) check(*turn);
  for (const auto& turn : running_) check(*turn);
}

void Scheduler::EndForDrain(absl::Duration now) {
  const std::optional<absl::Duration> deadline = registry_.drain_deadline();
  if (!deadline.has_value()) return;
  for (const auto& turn : waiting_) {
    if (!turn->ended) Fail(*turn, Draining());
  }
  if (now < *deadline) return;
  for (const auto& turn : running_) {
    if (!turn->ended) Fail(*turn, Draining());
  }
}

void Scheduler::Break(const absl::Status& cause) {
  if (failure_.has_value()) return;
  failure_ = IsBackendFailure(cause) ? cause : BackendFailed(cause);
  registry_.BeginDrain(parts_.clock->Monotonic());
  FailAll(*failure_, Draining());
  AbandonFlights();
}

void Scheduler::FailAll(const absl::Status& running, const absl::Status& waiting) {
  for (const auto& turn : running_) {
    if (!turn->ended) Fail(*turn, running);
  }
  for (const auto& turn : waiting_) {
    if (!turn->ended) Fail(*turn, waiting);
  }
}

void Scheduler::Sweep() {
  const auto ended = [](const std::unique_ptr<Turn>& turn) { return turn->ended; };
  std::erase_if(waiting_, ended);
  std::erase_if(running_, ended);
}

absl::Duration Scheduler::IdleTime() {
  if (in_flight() > 0) return absl::ZeroDuration();
  absl::Duration at = absl::InfiniteDuration();
  for (const auto& turn : running_) {
    if (turn->timer.phase() != PhaseTimer::kParked) return absl::ZeroDuration();
    at =
        std::min({at, turn->request.deadline, turn->sink->BlockedSince() + options_.stall_timeout});
  }
  for (const auto& turn : waiting_) at = std::min(at, turn->request.deadline);
  const bool any = !running_.empty() || !waiting_.empty();
  const absl::Duration longest = any ? kPoll : absl::Seconds(1);
  return std::clamp(at - parts_.clock->Monotonic(), absl::ZeroDuration(), longest);
}

void Scheduler::Shutdown() {
  BeginDrain(absl::ZeroDuration());
  TakeCommands();
  FailAll(Draining(), Draining());
  Sweep();
  // The device is done with all pages before anybody takes them away.
  for (int i = in_flight(); i > 0; --i) (void)parts_.backend->Collect();
  AbandonFlights();
}

}  // namespace tokend::engine
