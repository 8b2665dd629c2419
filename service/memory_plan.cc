#include "service/memory_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "service/errors.h"

namespace tokend::service {
namespace {

// The least context worth starting for.
constexpr int64_t kLeastTokens = 256;

std::string MiB(int64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

// One more than the tokens fill: a fork copies the partly filled last page.
int64_t PagesFor(const MemoryPlanInputs& inputs, int64_t tokens) {
  const int64_t per_layer = (tokens + inputs.page_tokens - 1) / inputs.page_tokens + 1;
  return per_layer * inputs.layers;
}

}  // namespace

absl::StatusOr<int64_t> PlanPages(const MemoryPlanInputs& inputs) {
  const int64_t least = PagesFor(inputs, std::min(kLeastTokens, inputs.context_tokens));
  const int64_t most = PagesFor(inputs, inputs.context_tokens) * inputs.max_running;
  const bool known = inputs.available_bytes >= 0;
  const int64_t left = std::max<int64_t>(0, inputs.available_bytes - inputs.held_bytes);
  if (inputs.kv_budget_bytes.has_value()) {
    const int64_t budget = *inputs.kv_budget_bytes;
    const int64_t pages = budget / inputs.page_bytes;
    if (pages < least) {
      return BadSetting(
          "kv_budget_bytes",
          absl::StrCat(budget, " is less than one short turn needs: ", least * inputs.page_bytes));
    }
    if (known && budget > left) {
      return absl::ResourceExhaustedError(
          absl::StrCat("kv_budget_bytes: ", MiB(budget), " are more than the ", MiB(left),
                       " of memory that are available beside the weights"));
    }
    return pages;
  }
  const double share = inputs.share.value_or(inputs.default_share);
  const int64_t of_share = static_cast<int64_t>(static_cast<double>(left) * share);
  int64_t pages = known ? of_share / inputs.page_bytes : most;
  if (!inputs.share.has_value()) pages = std::min(most, pages);
  if (pages < least) {
    return absl::ResourceExhaustedError(
        absl::StrCat(share, " of the ", MiB(left),
                     " of memory that are available beside the weights "
                     "is less than one short turn needs (",
                     MiB(least * inputs.page_bytes), ")"));
  }
  return pages;
}

absl::Status CheckQuotas(const std::vector<PrincipalSettings>& principals, int64_t pages) {
  int64_t sum = 0;
  for (const PrincipalSettings& principal : principals) sum += principal.quota_pages.value_or(0);
  if (sum <= pages) return absl::OkStatus();
  return BadSetting("principals", absl::StrCat("the quotas are together ", sum,
                                               " pages; the KV cache has ", pages));
}

absl::Status CheckWeightsFit(int64_t weight_bytes, int64_t available_bytes) {
  if (available_bytes < 0 || weight_bytes < available_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the weights need ", MiB(weight_bytes), " and ",
                                                   MiB(available_bytes), " are available"));
}

}  // namespace tokend::service
