#ifndef TOKEND_CUDA_KERNELS_RUNTIME_LOADED_CODE_H_
#define TOKEND_CUDA_KERNELS_RUNTIME_LOADED_CODE_H_

#include <driver_types.h>

namespace tokend::cuda {

// What runs of this library's code on the calling thread's device.
struct LoadedCode {
  int machine = 0;  // what it was compiled for, by nvcc or by the driver: 90 for 9.0
  int ptx = 0;      // what it was written for
};

// cudaErrorNoKernelImageForDevice: the library has none for this device.
cudaError_t ReadLoadedCode(LoadedCode* out);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_RUNTIME_LOADED_CODE_H_
