#ifndef TOKEND_CUDA_KERNELS_BACKEND_ERRORS_H_
#define TOKEND_CUDA_KERNELS_BACKEND_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tokend::cuda {

// UNIMPLEMENTED, kFeatureUnavailable: a model that this backend cannot run.
absl::Status UnsupportedPlan(absl::string_view problem);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_BACKEND_ERRORS_H_
