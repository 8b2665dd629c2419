// One step: who runs how many rows, and what comes of them.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/engine/errors.h"
#include "core/engine/scheduler.h"
#include "core/sampling/errors.h"

namespace tokend::engine {
void Scheduler::PauseSlowReaders(absl::Duration now) {
  for (const auto& turn : running_) {
    if (turn->ended) continue;
    const absl::Duration blocked = turn->sink->BlockedSince();
    if (blocked != absl::InfiniteDuration() && now - blocked >= options_.stall_timeout) {
      Fail(*turn, ReaderTooSlow(now - blocked));
    } else if (turn->decoding() && !turn->sink->Writable()) {
      turn->has_place = false;
    }
  }
  // Whose reader is back goes on in the order of the starts, before anybody new starts.
  int places = FreePlaces();
  for (const auto& turn : running_) {
    if (turn->ended) continue;
    if (!turn->has_place && places > 0 && turn->sink->Writable()) {
      turn->has_place = true;
      --places;
    }
    if (!turn->decoding() || !turn->awake()) continue;
    auto phase = turn->rows_left() > 1 ? PhaseTimer::kPrefill : PhaseTimer::kDecode;
    if (!turn->has_place) phase = PhaseTimer::kParked;
    if (phase != turn->timer.phase()) turn->timer.Enter(phase, now);
  }
}

int Scheduler::FreePlaces() const {
  const auto taken = std::count_if(running_.begin(), running_.end(), [](const auto& turn) {
    return !turn->ended && turn->has_place;
  });
  return options_.max_running - static_cast<int>(taken);
}

void Scheduler::Plan() {
  StepLimits limits;
  limits.max_batch_tokens = options_.max_batch_tokens;
  limits.prefill_chunk_tokens = options_.prefill_chunk_tokens;
  limits.page_tokens = options_.page_tokens;
  limits.target = options_.step_time_target;
  demands_.clear();
  for (const auto& turn : running_) {
    StepDemand demand;
    if (turn->timer.phase() != PhaseTimer::kParked) demand.rows = turn->branch->step_rows();
    demand.decode = turn->decoding() && turn->rows_left() == 1;
    limits.hurry = limits.hurry || turn->request.deadline != absl::InfiniteDuration();
    demands_.push_back(demand);
  }
  PlanStep(demands_, limits, cost_, &rows_);
}

absl::Status Scheduler::SubmitNext() {
  Plan();
  Flight& flight = NextFlight();
  const absl::Status prepared = Prepare(&flight.batch);
  Sweep();
  TOKEND_RETURN_IF_ERROR(prepared);
  if (flight.batch.rows() == 0) return absl::OkStatus();
  return SubmitFlight(flight);
}

absl::Status Scheduler::Prepare(StepBatchBuilder* batch) {
  batch->Clear();
  if (failure_.has_value()) return absl::OkStatus();
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i] > 0 && running_[i]->awake()) {
      TOKEND_RETURN_IF_ERROR(PrepareTurn(*running_[i], &rows_[i]));
    }
  }
  // A turn prepared early may have given its pages to one before it.
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i] > 0 && running_[i]->awake()) batch->Add(running_[i].get(), rows_[i]);
  }
  return absl::OkStatus();
}

absl::Status Scheduler::PrepareTurn(Turn& turn, int* rows) {
  while (true) {
    absl::Status status = LeavesRoom(turn, *rows)
                              ? turn.branch->Prepare(*rows)
                              : KvPoolFull("others may go on first", std::nullopt);
    if (status.ok() || !absl::IsResourceExhausted(status)) return status;
    const auto filled = static_cast<int>(turn.branch->computed() % options_.page_tokens);
    if (*rows > options_.page_tokens) {
      *rows = std::max(options_.page_tokens, *rows / 2);
    } else if (*rows > options_.page_tokens - filled) {
      *rows = options_.page_tokens - filled;
    } else if (!FreePagesFor(turn, status)) {
      *rows = 0;
      return absl::OkStatus();
    }
  }
}

void Scheduler::FinishStep(const StepBatchBuilder& batch, const ops::StepOutput& output,
                           absl::Duration took) {
  const absl::Duration now = parts_.clock->Monotonic();
  cost_.Observe(batch.rows(), took);
  parks_in_vain_ = 0;
  saturated_activations_ = output.saturated_activations;
  base::StepReport report;
  report.duration = took;
  int drawn = 0;
  for (const StepBatchBuilder::Entry& entry : batch.entries()) {
    (entry.decode ? report.decode_tokens : report.prefill_tokens) += entry.rows;
    if (entry.turn == nullptr) continue;
    Turn& turn = *entry.turn;
    turn.branch->Advance(entry.rows);
    if (!entry.decode) FinishPrefillRows(turn, entry.rows);
    if (entry.logit_row < 0 || turn.ended) continue;
    const auto row = static_cast<size_t>(entry.logit_row);
    ++drawn;
    if (output.tokens.empty()) {
      const auto logits = output.logits.subspan(row * options_.vocabulary_size);
      DrawToken(turn, logits.first(static_cast<size_t>(vocabulary_size_)), now);
    } else if (const int32_t token = output.tokens[row]; token >= 0) {
      AddToken(turn, token, std::nullopt, now);
    } else {
      Fail(turn, sampling::NonFiniteLogit(-1 - token));
    }
  }
  report.decode = took * report.decode_tokens / batch.rows();
  report.prefill = took - report.decode;
  parts_.observer->OnStep(report);
  if (drawn > 0) parts_.observer->OnGeneratedTokens(drawn);
  rates_.Add(report.prefill_tokens, drawn, now);
}

void Scheduler::FinishPrefillRows(Turn& turn, int rows) {
  // What was computed before the turn was parked is not counted again.
  const int64_t end = std::min(turn.branch->computed(), turn.output_position());
  turn.usage.computed_tokens += std::clamp<int64_t>(end - turn.prefilled, 0, rows);
  turn.prefilled = std::max(turn.prefilled, end);
  if (end < turn.output_position() || std::exchange(turn.prompt_told, true)) return;
  parts_.observer->OnPrompt(turn.usage.computed_tokens, turn.branch->stats().cached_tokens);
  if (turn.limit.tokens > 0) return;
  Ending ending;
  ending.reason = turn.limit.reason;
  ending.keep = 0;
  (void)Finish(turn, ending);
}

void Scheduler::DrawToken(Turn& turn, absl::Span<const float> logits, absl::Duration now) {
  const int64_t position = turn.branch->tokens();
  const auto token = sampler_.Sample(logits, turn.request.sampling, turn.penalties, position);
  if (!token.ok()) {
    Fail(turn, token.status());
    return;
  }
  std::optional<TokenLogprob> logprob;
  if (turn.request.top_logprobs.has_value()) {
    std::vector<sampling::TokenProbability> top;
    logprob.emplace();
    logprob->token_id = *token;
    logprob->logprob = sampler_.LogProbabilities(logits, *token, *turn.request.top_logprobs, &top);
    for (const auto& [id, value] : top) logprob->top.push_back({id, value});
  }
  AddToken(turn, *token, std::move(logprob), now);
}

void Scheduler::AddToken(Turn& turn, int32_t token, std::optional<TokenLogprob> logprob,
                         absl::Duration now) {
  const bool first = !turn.decoding();
  const absl::Duration since = turn.timer.OnToken(now);
  if (turn.timer.phase() != PhaseTimer::kDecode) turn.timer.Enter(PhaseTimer::kDecode, now);
  if (first) {
    parts_.observer->OnFirstToken(since);
  } else {
    parts_.observer->OnInterToken(since);
  }
  turn.branch->Append({token});
  turn.output_tokens.push_back(token);
  turn.penalties.AddOutput(token);
  TakeToken(turn, token, std::move(logprob));
}

void Scheduler::TakeToken(Turn& turn, int32_t token, std::optional<TokenLogprob> logprob) {
  const StopRules& stop = turn.request.stop;
  const auto drawn = static_cast<int64_t>(turn.output_tokens.size());
  std::optional<Ending> ending;
  if (std::find(stop.token_ids.begin(), stop.token_ids.end(), token) != stop.token_ids.end()) {
    ending = {kv::FinishReason::kStop, token, drawn};
  } else if (parts_.tokenizer->IsEndOfText(token) && !stop.ignore_end_of_text) {
    ending = {kv::FinishReason::kEndOfText, std::nullopt, drawn};
  } else if (turn.output.Push(token, std::move(logprob))) {
    ending = {kv::FinishReason::kStop, std::nullopt, turn.output.kept_tokens()};
  } else if (drawn >= turn.limit.tokens) {
    ending = {turn.limit.reason, std::nullopt, drawn};
  }
  std::optional<Delta> delta =
      ending.has_value() ? turn.output.TakeRest() : turn.output.TakeReady();
  if (delta.has_value()) turn.sink->OnDelta(*std::move(delta));
  if (ending.has_value()) (void)Finish(turn, *ending);
}

}  // namespace tokend::engine
