#include "cuda_kernels/device/dependent_launch.cuh"
#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/device/shared_memory.cuh"
#include "cuda_kernels/kernels/half_rows.cuh"
#include "cuda_kernels/kernels/norm.h"
#include "cuda_kernels/kernels/row_norm.cuh"

namespace tokend::cuda {
namespace {

// Of each of a kernel's norms; a second one may start while a warp still reads the
// sums of the first.
struct NormShared {
  float first[2 * kNormWarps];
  float second[2 * kNormWarps];
};

TOKEND_DEVICE RowStatistics Statistics(const RowNorm& norm, const float* x, int width,
                                       float* warp_sums) {
  if (norm.weight == nullptr) return {};
  return NormStatistics(norm.kind, x, width, norm.epsilon, warp_sums);
}

TOKEND_DEVICE float Normed(const RowNorm& norm, const RowStatistics& statistics, float x, int i) {
  return norm.weight == nullptr ? x : NormedElement(norm, statistics, x, i);
}

// The four elements from `i` on.
struct Quad {
  float at[4];
};

TOKEND_DEVICE Quad LoadQuad(const float* row, int i) {
  const float4 quad = *reinterpret_cast<const float4*>(row + i);
  return {{quad.x, quad.y, quad.z, quad.w}};
}

TOKEND_DEVICE void StoreQuad(const Quad& quad, float* row, int i) {
  *reinterpret_cast<float4*>(row + i) = make_float4(quad.at[0], quad.at[1], quad.at[2], quad.at[3]);
}

// x += scale * post(y). Each thread works on the elements that it sums in a norm of
// x, so that no barrier stands between.
TOKEND_DEVICE void AddNormed(const NormRowsParams& params, const float* y, float* x,
                             float* warp_sums) {
  const RowStatistics statistics = Statistics(params.post, y, params.width, warp_sums);
  for (int i = 4 * static_cast<int>(threadIdx.x); i < params.width; i += 4 * kNormLanes) {
    const Quad from = LoadQuad(y, i);
    Quad to = LoadQuad(x, i);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float normed = Normed(params.post, statistics, from.at[e], i + e);
      to.at[e] = fmaf(params.scale, normed, to.at[e]);
    }
    StoreQuad(to, x, i);
  }
}

// Block: one row, kNormLanes threads.
__global__ void NormRowsKernel(NormRowsParams params) {
  NormShared& shared = SharedMemory<NormShared>();
  AllowNextKernel();
  WaitForPreviousKernel();
  const int row = static_cast<int>(blockIdx.x);
  const int64_t from = params.row_index == nullptr ? row : params.row_index[row];
  float* x = params.x + from * params.x_stride;
  if (params.y != nullptr) AddNormed(params, params.y + from * params.y_stride, x, shared.first);
  if (params.out.hi == nullptr) return;
  const RowStatistics statistics = Statistics(params.norm, x, params.width, shared.second);
  for (int i = 4 * static_cast<int>(threadIdx.x); i < params.width; i += 4 * kNormLanes) {
    const Quad quad = LoadQuad(x, i);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      StoreHalf(params.out, row, i + e, Normed(params.norm, statistics, quad.at[e], i + e),
                params.saturations);
    }
  }
}

// Block: one row, kNormLanes threads.
__global__ void NormInPlaceKernel(NormInPlaceParams params) {
  NormShared& shared = SharedMemory<NormShared>();
  AllowNextKernel();
  WaitForPreviousKernel();
  float* x = params.values + static_cast<int64_t>(blockIdx.x) * params.stride;
  const RowStatistics statistics = Statistics(params.norm, x, params.width, shared.first);
  for (int i = 4 * static_cast<int>(threadIdx.x); i < params.width; i += 4 * kNormLanes) {
    Quad quad = LoadQuad(x, i);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      quad.at[e] = Normed(params.norm, statistics, quad.at[e], i + e);
    }
    StoreQuad(quad, x, i);
  }
}

LaunchDims Dims(int rows) {
  LaunchDims dims;
  dims.grid_x = static_cast<unsigned>(rows);
  dims.threads = kNormLanes;
  dims.shared_bytes = sizeof(NormShared);
  return dims;
}

bool InQuads(int width, int64_t stride) { return width % 4 == 0 && stride % 4 == 0; }

}  // namespace

absl::Status NormRows(const NormRowsParams& params, cudaStream_t stream) {
  if (params.rows == 0) return absl::OkStatus();
  if (!InQuads(params.width, params.x_stride) || !InQuads(params.width, params.y_stride)) {
    return absl::InvalidArgumentError("NormRows: a width or stride that is no multiple of 4");
  }
  return Launch("NormRows", NormRowsKernel, Dims(params.rows), params, stream);
}

absl::Status NormInPlace(const NormInPlaceParams& params, cudaStream_t stream) {
  if (params.rows == 0) return absl::OkStatus();
  if (!InQuads(params.width, params.stride)) {
    return absl::InvalidArgumentError("NormInPlace: a width or stride that is no multiple of 4");
  }
  return Launch("NormInPlace", NormInPlaceKernel, Dims(params.rows), params, stream);
}

}  // namespace tokend::cuda
