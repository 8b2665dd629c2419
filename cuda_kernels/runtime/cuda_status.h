#ifndef TOKEND_CUDA_KERNELS_RUNTIME_CUDA_STATUS_H_
#define TOKEND_CUDA_KERNELS_RUNTIME_CUDA_STATUS_H_

#include <driver_types.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tokend::cuda {

// OK for cudaSuccess. cudaErrorMemoryAllocation is RESOURCE_EXHAUSTED; everything
// else is INTERNAL with kBackendFailed. `what` names the kernel or the call. Takes
// the error off the thread's record, so that no later call reports it again.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

// The device's context is lost: every later call of this process fails, too.
bool IsSticky(cudaError_t error);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_RUNTIME_CUDA_STATUS_H_
