#include "core/engine/step_plan.h"

#include <algorithm>

namespace tokend::engine {
namespace {

// Rows of prefill before any step was measured: some milliseconds to a second.
constexpr int kFirstChunk = 128;

}  // namespace

void PlanStep(absl::Span<const StepDemand> demands, const StepLimits& limits, const StepCost& cost,
              std::vector<int>* rows) {
  rows->assign(demands.size(), 0);
  int decode_rows = 0;
  for (size_t i = 0; i < demands.size(); ++i) {
    if (!demands[i].decode || demands[i].rows == 0) continue;
    (*rows)[i] = 1;
    ++decode_rows;
  }
  int budget = limits.max_batch_tokens - decode_rows;
  const bool automatic = limits.prefill_chunk_tokens == 0;
  if (automatic) {
    const absl::Duration target =
        limits.hurry || decode_rows > 0 ? limits.target : limits.target * kRelaxedSteps;
    const int within = cost.has_data()
                           ? cost.RowsWithin(target, limits.max_batch_tokens) - decode_rows
                           : kFirstChunk;
    budget = std::min(budget, std::max(within, limits.page_tokens));
  }
  for (size_t i = 0; i < demands.size() && budget > 0; ++i) {
    if (demands[i].decode || demands[i].rows == 0) continue;
    int chunk = static_cast<int>(std::min<int64_t>(budget, demands[i].rows));
    if (!automatic) chunk = std::min(chunk, limits.prefill_chunk_tokens);
    (*rows)[i] = chunk;
    budget -= chunk;
  }
}

}  // namespace tokend::engine
