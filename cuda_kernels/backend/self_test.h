#ifndef TOKEND_CUDA_KERNELS_BACKEND_SELF_TEST_H_
#define TOKEND_CUDA_KERNELS_BACKEND_SELF_TEST_H_

#include "absl/status/status.h"
#include "cuda_kernels/runtime/device.h"
#include "cuda_kernels/runtime/stream.h"

namespace tokend::cuda {

// Results do not depend on neighbours only if a tensor core gives a column the same
// bits wherever it stands, whatever stands beside it (NaN included) and in tiles of any
// width: true of the parts that were studied, promised by no document. Takes some
// milliseconds. FAILED_PRECONDITION: not so on this device.
absl::Status CheckRowInvariance(const DeviceInfo& device, const Stream& stream);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_BACKEND_SELF_TEST_H_
