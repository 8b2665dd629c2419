#include "core/cpu/errors.h"

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace tokend::cpu {

absl::Status UnsupportedPlan(absl::string_view problem) {
  return base::MakeError(absl::StatusCode::kUnimplemented, absl::StrCat("cpu backend: ", problem),
                         {base::ErrorReason::kFeatureUnavailable, {{"feature", "model"}}, {}});
}

}  // namespace tokend::cpu
