#include "cuda_kernels/runtime/cuda_status.h"

#include <cuda_runtime_api.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace tokend::cuda {

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const std::string message = absl::StrCat("cuda: ", what, ": ", cudaGetErrorString(error),
                                           IsSticky(error) ? "; only a new process can go on" : "");
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  return base::MakeError(absl::StatusCode::kInternal, message,
                         {base::ErrorReason::kBackendFailed, {}, {}});
}

}  // namespace tokend::cuda
