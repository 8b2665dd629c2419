#include "cuda_kernels/kernels/matmul_wide.cuh"

namespace tokend::cuda {

absl::Status RunMatmulWide(const Matmul& matmul, const DeviceInfo& device, cudaStream_t stream) {
  return RunWideKernel<8, false>(matmul, device, stream);
}

}  // namespace tokend::cuda
