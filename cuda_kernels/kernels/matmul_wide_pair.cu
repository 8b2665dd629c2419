#include "cuda_kernels/kernels/matmul_wide.cuh"

namespace tokend::cuda {

absl::Status RunMatmulWidePair(const Matmul& matmul, const DeviceInfo& device,
                               cudaStream_t stream) {
  return RunWideKernel<4, true>(matmul, device, stream);
}

}  // namespace tokend::cuda
