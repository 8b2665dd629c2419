#include "cuda_kernels/kernels/matmul_decode.cuh"

namespace tokend::cuda {

absl::Status RunMatmulDecodePair(const Matmul& matmul, const DeviceInfo& device,
                                 cudaStream_t stream) {
  if (matmul.rows <= 8) return RunDecodeKernel<1, true>(matmul, device, stream);
  return RunDecodeKernel<2, true>(matmul, device, stream);
}

}  // namespace tokend::cuda
