#include "cuda_kernels/runtime/cuda_status.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace tokend::cuda {

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message = absl::StrCat("cuda: ", what, ": ", cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  return base::MakeError(absl::StatusCode::kInternal, message,
                         {base::ErrorReason::kBackendFailed, {}, {}});
}

}  // namespace tokend::cuda
