// The one function that libtokend_cuda.so shows.
#include "cuda_kernels/backend/create.h"
#include "cuda_kernels/backend/cuda_abi.h"

extern "C" __attribute__((visibility("default"))) const tokend::cuda::CudaLibrary*
tokend_cuda_library() {
  static const tokend::cuda::CudaLibrary library = {
      tokend::cuda::kCudaAbi, tokend::cuda::OpenDevice, tokend::cuda::CreateCudaBackend};
  return &library;
}
