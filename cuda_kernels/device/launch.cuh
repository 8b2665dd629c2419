// How host code starts a kernel, on a device or on the stand-in.
#ifndef TOKEND_CUDA_KERNELS_DEVICE_LAUNCH_CUH_
#define TOKEND_CUDA_KERNELS_DEVICE_LAUNCH_CUH_

#include <cstddef>

#include "absl/status/status.h"
#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/runtime/cuda_status.h"

namespace tokend::cuda {

struct LaunchDims {
  unsigned grid_x = 1;
  unsigned grid_y = 1;
  unsigned grid_z = 1;
  unsigned threads = 128;  // of a block, a multiple of 32
  size_t shared_bytes = 0;
  // May start before the kernel before it has ended (see dependent_launch.cuh).
  bool dependent = false;
};

// Shared memory that a block may have without being asked for.
inline constexpr size_t kDefaultSharedBytes = 48 * 1024;

// Starts kernel(params) on `stream`, or adds it to the graph that the stream
// captures. `name` is a literal; errors are CudaError(code, name).
template <typename Params>
absl::Status Launch(const char* name, void (*kernel)(Params), const LaunchDims& dims,
                    const Params& params, cudaStream_t stream) {
#ifdef TOKEND_SIMT
  return CudaStatus(simt::Launch(name, kernel, dims, params, stream), name);
#else
  if (dims.shared_bytes > kDefaultSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(dims.shared_bytes));
    if (error != cudaSuccess) return CudaStatus(error, name);
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(dims.grid_x, dims.grid_y, dims.grid_z);
  config.blockDim = dim3(dims.threads);
  config.dynamicSmemBytes = dims.shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dims.dependent ? 1 : 0;
  void* arguments[] = {const_cast<Params*>(&params)};
  return CudaStatus(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments),
                    name);
#endif
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_DEVICE_LAUNCH_CUH_
