#ifndef TOKEND_CUDA_KERNELS_RUNTIME_CUDA_STATUS_H_
#define TOKEND_CUDA_KERNELS_RUNTIME_CUDA_STATUS_H_

#include <driver_types.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tokend::cuda {

// OK for cudaSuccess. cudaErrorMemoryAllocation is RESOURCE_EXHAUSTED; everything
// else is INTERNAL with kBackendFailed. `what` names the kernel or the call.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_RUNTIME_CUDA_STATUS_H_
