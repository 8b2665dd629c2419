#ifndef TOKEND_CORE_ENGINE_STEP_PLAN_H_
#define TOKEND_CORE_ENGINE_STEP_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/engine/step_cost.h"

namespace tokend::engine {

// What a running turn could do in a step.
struct StepDemand {
  int64_t rows = 0;     // positions without KV; 0: the turn is paused
  bool decode = false;  // one row, the token drawn last
};

struct StepLimits {
  int max_batch_tokens = 0;
  int prefill_chunk_tokens = 0;  // 0: by `target`
  int page_tokens = 0;
  absl::Duration target;
  bool hurry = false;  // somebody waits for the step: keep it within `target`
};

// Without anybody who waits a step may take so many times its target: cancelled
// and new turns are only seen between steps.
inline constexpr int kRelaxedSteps = 8;

// `rows`: of each turn in the next step, by `demands` (in the order of admission):
// each decode row, then prefill until the budget is spent, in order. Prefill gets
// at least a page's worth, however slow the steps are.
void PlanStep(absl::Span<const StepDemand> demands, const StepLimits& limits, const StepCost& cost,
              std::vector<int>* rows);

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_STEP_PLAN_H_
