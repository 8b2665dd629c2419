// How much memory the KV cache gets: planned before any of it is taken.
#ifndef TOKEND_SERVICE_MEMORY_PLAN_H_
#define TOKEND_SERVICE_MEMORY_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/settings.h"

namespace tokend::service {

struct MemoryPlanInputs {
  int64_t available_bytes = 0;  // before the backend took anything; negative: unknown
  int64_t held_bytes = 0;       // weights and workspace of the backend
  int64_t page_bytes = 0;       // of one page of one layer
  int layers = 0;
  int page_tokens = 0;
  int64_t context_tokens = 0;
  int max_running = 0;
  std::optional<int64_t> kv_budget_bytes;
  double default_share = 0.5;   // of what is left, without a budget
  std::optional<double> share;  // the same as set: not cut to what max_running need
};

// Pages of the arena, over all layers. Without a budget: a share of the available
// memory less what is held, at most what max_running contexts need.
// INVALID_ARGUMENT (kv_budget_bytes): the budget does not hold one short turn.
// RESOURCE_EXHAUSTED: the memory is not there.
absl::StatusOr<int64_t> PlanPages(const MemoryPlanInputs& inputs);

// INVALID_ARGUMENT (principals): the quotas are together more than the pool.
absl::Status CheckQuotas(const std::vector<PrincipalSettings>& principals, int64_t pages);

// RESOURCE_EXHAUSTED if weights of this size cannot be held.
absl::Status CheckWeightsFit(int64_t weight_bytes, int64_t available_bytes);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_MEMORY_PLAN_H_
