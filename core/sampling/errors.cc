#include "core/sampling/errors.h"

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace tokend::sampling {

absl::Status NonFiniteLogit(int32_t token) {
  return base::MakeError(absl::StatusCode::kInternal,
                         absl::StrCat("the model's logit of token ", token, " is not finite"),
                         {base::ErrorReason::kRequestFailed, {}, {}});
}

absl::Status EveryTokenForbidden() {
  return base::InvalidField("turn.sampling.logit_bias", "forbids every token");
}

}  // namespace tokend::sampling
