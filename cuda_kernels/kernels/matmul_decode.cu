#include "cuda_kernels/kernels/matmul_decode.cuh"

namespace tokend::cuda {

absl::Status RunMatmulDecode(const Matmul& matmul, const DeviceInfo& device, cudaStream_t stream) {
  if (matmul.rows <= 8) return RunDecodeKernel<1, false>(matmul, device, stream);
  if (matmul.rows <= 16) return RunDecodeKernel<2, false>(matmul, device, stream);
  return RunDecodeKernel<4, false>(matmul, device, stream);
}

}  // namespace tokend::cuda
