// The norm of one row, with the same bits wherever it is computed: in a kernel of
// its own or in the prologue of a matmul.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_ROW_NORM_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_ROW_NORM_CUH_

#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/kernels/row_norm.h"

namespace tokend::cuda {

// A sum over a row is cut into 128 virtual lanes: lane v takes the quads of elements
// 4 (v + 128 j) and adds their elements in ascending order. 128 consecutive threads
// (four warps, aligned) own a row, thread by thread a virtual lane. Lanes of a warp
// are then added in a butterfly and the four warps as (0 + 1) + (2 + 3).
inline constexpr int kNormLanes = 128;
inline constexpr int kNormWarps = kNormLanes / kWarpLanes;

struct RowStatistics {
  float mean = 0;   // LayerNorm alone
  float scale = 0;  // 1 / sqrt(mean square or variance + epsilon)
};

// Sum over the warp, the same bits in every lane.
TOKEND_DEVICE float WarpSum(float value) {
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

// This virtual lane's part of the sum of x (kSquares: of (x - mean)^2).
template <bool kSquares>
TOKEND_DEVICE float NormLaneSum(const float* x, int width, float mean, int virtual_lane) {
  float sum = 0;
#pragma unroll 4
  for (int i = 4 * virtual_lane; i < width; i += 4 * kNormLanes) {
    const float4 quad = *reinterpret_cast<const float4*>(x + i);
    const float values[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float centred = kSquares ? values[e] - mean : values[e];
      sum = kSquares ? fmaf(centred, centred, sum) : sum + centred;
    }
  }
  return sum;
}

// The statistics of a row x [width], width a multiple of 4, x 16-byte aligned. The whole
// block calls it, each 128 threads with a row of their own; a row of nullptr has
// none. `warp_sums` is 2 * (threads / 32) floats of shared memory, which are free
// again after the block's next barrier.
TOKEND_DEVICE RowStatistics NormStatistics(NormKind kind, const float* x, int width, float epsilon,
                                           float* warp_sums) {
  const int virtual_lane = static_cast<int>(threadIdx.x) % kNormLanes;
  const int first_warp = Warp() / kNormWarps * kNormWarps;
  const float count = static_cast<float>(width);
  RowStatistics statistics;
  if (kind == NormKind::kLayer) {
    float* sums = warp_sums + blockDim.x / kWarpLanes;
    const float sum =
        WarpSum(x == nullptr ? 0.0f : NormLaneSum<false>(x, width, 0.0f, virtual_lane));
    if (Lane() == 0) sums[Warp()] = sum;
    __syncthreads();
    const float* four = sums + first_warp;
    statistics.mean = ((four[0] + four[1]) + (four[2] + four[3])) / count;
  }
  const float sum =
      WarpSum(x == nullptr ? 0.0f : NormLaneSum<true>(x, width, statistics.mean, virtual_lane));
  if (Lane() == 0) warp_sums[Warp()] = sum;
  __syncthreads();
  const float* four = warp_sums + first_warp;
  const float mean_square = ((four[0] + four[1]) + (four[2] + four[3])) / count;
  statistics.scale = 1.0f / sqrtf(mean_square + epsilon);
  return statistics;
}

// Element `i` of the normed row, of which `x` is the element before.
TOKEND_DEVICE float NormedElement(const RowNorm& norm, const RowStatistics& statistics, float x,
                                  int i) {
  const float scaled = (x - statistics.mean) * statistics.scale;
  const float bias = norm.bias == nullptr ? 0.0f : norm.bias[i];
  return fmaf(scaled, norm.weight[i], bias);
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_ROW_NORM_CUH_
