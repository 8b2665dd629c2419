#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/kernels/copy_pages.h"

namespace tokend::cuda {
namespace {

constexpr int kThreads = 256;

// Block: one page.
__global__ void CopyPagesKernel(CopyPagesParams params) {
  const int64_t units = params.page_bytes / static_cast<int64_t>(sizeof(uint4));
  const auto* from =
      reinterpret_cast<const uint4*>(params.arena + params.from[blockIdx.x] * params.page_bytes);
  auto* to = reinterpret_cast<uint4*>(params.arena + params.to[blockIdx.x] * params.page_bytes);
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x) to[i] = from[i];
}

}  // namespace

absl::Status CopyPages(const CopyPagesParams& params, cudaStream_t stream) {
  if (params.count == 0) return absl::OkStatus();
  LaunchDims dims;
  dims.grid_x = static_cast<unsigned>(params.count);
  dims.threads = kThreads;
  return Launch("CopyPages", CopyPagesKernel, dims, params, stream);
}

}  // namespace tokend::cuda
