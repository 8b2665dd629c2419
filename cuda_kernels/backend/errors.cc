#include "cuda_kernels/backend/errors.h"

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace tokend::cuda {

absl::Status UnsupportedPlan(absl::string_view problem) {
  return base::MakeError(absl::StatusCode::kUnimplemented, absl::StrCat("cuda backend: ", problem),
                         {base::ErrorReason::kFeatureUnavailable, {{"feature", "model"}}, {}});
}

}  // namespace tokend::cuda
