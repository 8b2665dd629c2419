// One step: who runs how many rows, and what comes of them.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/engine/errors.h"
#include "core/engine/scheduler.h"
#include "core/engine/step_plan.h"

namespace tokend::engine {
namespace {

// After so long another turn may well have ended and left its pages.
constexpr absl::Duration kPoolRetry = absl::Seconds(1);

}  // namespace

void Scheduler::PauseSlowReaders(absl::Duration now) {
  for (const auto& turn : running_) {
    const absl::Duration blocked = turn->sink->BlockedSince();
    if (blocked != absl::InfiniteDuration() && now - blocked >= options_.stall_timeout) {
      Fail(*turn, ReaderTooSlow(now - blocked));
      continue;
    }
    if (!turn->decoding()) continue;
    const auto phase = turn->sink->Writable() ? PhaseTimer::kDecode : PhaseTimer::kParked;
    if (phase != turn->timer.phase()) turn->timer.Enter(phase, now);
  }
}

std::vector<int> Scheduler::Plan() {
  StepLimits limits;
  limits.max_batch_tokens = options_.max_batch_tokens;
  limits.prefill_chunk_tokens = options_.prefill_chunk_tokens;
  limits.page_tokens = options_.page_tokens;
  limits.target = options_.step_time_target;
  std::vector<StepDemand> demands;
  demands.reserve(running_.size());
  for (const auto& turn : running_) {
    StepDemand demand;
    demand.decode = turn->decoding();
    if (turn->timer.phase() != PhaseTimer::kParked) {
      demand.rows = turn->branch->tokens() - turn->branch->computed();
    }
    limits.hurry = limits.hurry || turn->request.deadline != absl::InfiniteDuration();
    demands.push_back(demand);
  }
  return PlanStep(demands, limits, cost_);
}

absl::Status Scheduler::Prepare(std::vector<int>& rows) {
  batch_.Clear();
  if (failure_.has_value()) return absl::OkStatus();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0 && !running_[i]->ended) TOKEND_RETURN_IF_ERROR(PrepareTurn(i, rows));
  }
  // A turn prepared early may have given its pages to one before it.
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0 && !running_[i]->ended) batch_.Add(running_[i].get(), rows[i]);
  }
  return absl::OkStatus();
}

absl::Status Scheduler::PrepareTurn(size_t index, std::vector<int>& rows) {
  Turn& turn = *running_[index];
  while (true) {
    absl::Status status = turn.branch->Prepare(rows[index]);
    if (status.ok() || !absl::IsResourceExhausted(status)) return status;
    if (rows[index] > options_.page_tokens) {
      rows[index] = std::max(options_.page_tokens, rows[index] / 2);
    } else if (!FreePagesFor(turn, status)) {
      return absl::OkStatus();
    }
  }
}

// Takes pages from whoever came last: one that waits with its base checked out,
// then a running turn. False: that is `turn` itself, which has ended.
bool Scheduler::FreePagesFor(const Turn& turn, const absl::Status& cause) {
  for (const auto& waiting : waiting_) {
    if (waiting->branch == nullptr) continue;
    waiting->branch.reset();
    return true;
  }
  Turn* last = nullptr;
  int alive = 0;
  for (const auto& running : running_) {
    if (running->ended) continue;
    last = running.get();
    ++alive;
  }
  TOKEND_CHECK(last != nullptr);
  if (alive == 1 && last->decoding()) {
    // Alone it has all that can be had: as full as a context can be.
    Ending ending;
    ending.reason = kv::FinishReason::kContextFull;
    ending.keep = static_cast<int64_t>(last->output_tokens.size());
    (void)Finish(*last, ending);
  } else if (alive == 1) {
    Fail(*last, cause);
  } else {
    Fail(*last, KvPoolFull("the KV pool is full and this turn started last", kPoolRetry));
  }
  return last != &turn;
}

void Scheduler::FinishStep(const ops::StepOutput& output, absl::Duration took) {
  const absl::Duration now = parts_.clock->Monotonic();
  cost_.Observe(batch_.rows(), took);
  base::StepReport report;
  report.duration = took;
  int drawn = 0;
  for (const StepBatchBuilder::Entry& entry : batch_.entries()) {
    Turn& turn = *entry.turn;
    (entry.decode ? report.decode_tokens : report.prefill_tokens) += entry.rows;
    turn.branch->Advance(entry.rows);
    if (!entry.decode) FinishPrefillRows(turn, entry.rows);
    if (entry.logit_row < 0 || turn.ended) continue;
    const size_t width = static_cast<size_t>(options_.vocabulary_size);
    ++drawn;
    DrawToken(turn,
              output.logits.subspan(static_cast<size_t>(entry.logit_row) * width)
                  .first(static_cast<size_t>(vocabulary_size_)),
              now);
  }
  report.decode = took * report.decode_tokens / batch_.rows();
  report.prefill = took - report.decode;
  parts_.observer->OnStep(report);
  if (drawn > 0) parts_.observer->OnGeneratedTokens(drawn);
  rates_.Add(report.prefill_tokens, drawn, now);
}

void Scheduler::FinishPrefillRows(Turn& turn, int rows) {
  turn.usage.computed_tokens += rows;
  if (turn.branch->computed() < turn.output_position()) return;
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
  const bool first = !turn.decoding();
  const absl::Duration since = turn.timer.OnToken(now);
  if (first) {
    turn.timer.Enter(PhaseTimer::kDecode, now);
    parts_.observer->OnFirstToken(since);
  } else {
    parts_.observer->OnInterToken(since);
  }
  turn.branch->Append({*token});
  turn.output_tokens.push_back(*token);
  turn.penalties.AddOutput(*token);
  TakeToken(turn, *token, std::move(logprob));
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
