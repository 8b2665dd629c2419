#include "cuda_kernels/device/dependent_launch.cuh"
#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/kernels/attention.h"

namespace tokend::cuda {
namespace {

// Thread: one pair of one row.
__global__ void RopeAnglesKernel(RopeAnglesParams params) {
  AllowNextKernel();
  WaitForPreviousKernel();
  const int pairs = params.table.dims / 2;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= int64_t{params.counts->angle_rows} * pairs) return;
  const double angle =
      static_cast<double>(params.positions[i / pairs]) * params.inverse_frequencies[i % pairs];
  params.table.cos[i] = static_cast<float>(cos(angle) * params.magnitude);
  params.table.sin[i] = static_cast<float>(sin(angle) * params.magnitude);
}

}  // namespace

absl::Status RopeAngles(const RopeAnglesParams& params, cudaStream_t stream) {
  const int64_t work = int64_t{params.max_angle_rows} * (params.table.dims / 2);
  if (work == 0) return absl::OkStatus();
  LaunchDims dims;
  dims.threads = 128;
  dims.grid_x = static_cast<unsigned>((work + dims.threads - 1) / dims.threads);
  return Launch("RopeAngles", RopeAnglesKernel, dims, params, stream);
}

}  // namespace tokend::cuda
