#ifndef TOKEND_CORE_CPU_ERRORS_H_
#define TOKEND_CORE_CPU_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tokend::cpu {

// UNIMPLEMENTED, kFeatureUnavailable: a model that this backend cannot run.
absl::Status UnsupportedPlan(absl::string_view problem);

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_ERRORS_H_
