#ifndef TOKEND_CUDA_KERNELS_BACKEND_DEVICE_LIMITS_H_
#define TOKEND_CUDA_KERNELS_BACKEND_DEVICE_LIMITS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "cuda_kernels/runtime/device.h"
#include "cuda_kernels/runtime/stream.h"

namespace tokend::cuda {

// What the device at hand does at best. Benchmarks state results as shares of it.
struct DeviceLimits {
  double read_bandwidth = 0;          // bytes/s
  double graph_node_seconds = 0;      // from one empty kernel of a graph to the next
  double dependent_node_seconds = 0;  // the same with dependent launch; 0: not there
  double matmul_flops = 0;            // of 8192^3 in f16 by cuBLASLt, 1/s; 0: not there
};

struct DeviceLimitsOptions {
  int64_t read_bytes = int64_t{2} << 30;  // far beyond any L2; less where memory is short
  int graph_nodes = 1000;
  int matmul_size = 8192;
  int runs = 5;  // of each, of which the best counts
};

// About a second. Takes read_bytes of memory while it runs, less where there are not
// as many.
absl::StatusOr<DeviceLimits> MeasureDeviceLimits(const DeviceInfo& device,
                                                 const DeviceLimitsOptions& options);

// Of a product of two f16 matrices of `size` x `size` random values with f32 sums, by
// cuBLASLt where the system has it, else 0.
absl::StatusOr<double> LibraryMatmulFlops(const Stream& stream, int size, int runs);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_BACKEND_DEVICE_LIMITS_H_
