// How the results of pieces become a row's.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_MERGE_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_MERGE_CUH_

#include "cuda_kernels/kernels/attention_piece.cuh"

namespace tokend::cuda {

// O = O keep + o add, L alike.
struct alignas(8) MergeFactors {
  float keep;
  float add;  // negative: the row sees nothing of the piece, and stays
};

// Merges a piece with largest score `piece` into rows with `*largest` so far (-Inf:
// none yet).
TOKEND_DEVICE MergeFactors MergeInto(float piece, float* largest) {
  if (piece == -INFINITY) return {1.0f, -1.0f};
  const float both = fmaxf(*largest, piece);
  const MergeFactors factors = {exp2f(*largest - both), exp2f(piece - both)};
  *largest = both;
  return factors;
}

TOKEND_DEVICE float Merged(const MergeFactors& factors, float total, float piece) {
  return factors.add < 0 ? total : fmaf(piece, factors.add, total * factors.keep);
}

TOKEND_DEVICE float Inverse(float sum) { return sum == 0 ? 0.0f : 1.0f / sum; }

// What thread `threadIdx.x` < kRows keeps of the row of that number.
struct RowTotal {
  float largest = -INFINITY;
  float sum = 0;
};

// The largest score of the thread's row in the piece, for Weigh. Between two barriers,
// behind Score.
template <typename Tile>
TOKEND_DEVICE float PublishMax(unsigned char* shared) {
  const int row = static_cast<int>(threadIdx.x);
  const auto* warps = reinterpret_cast<const float*>(shared + Tile::kWarpMax);
  float largest = -INFINITY;
#pragma unroll
  for (int warp = 0; warp < Tile::kWarps; ++warp) {
    largest = fmaxf(largest, warps[warp * Tile::kRows + row]);
  }
  // 2^(-Inf - 0) is 0, while -Inf - -Inf is NaN.
  reinterpret_cast<float*>(shared + Tile::kRowMax)[row] = largest == -INFINITY ? 0.0f : largest;
  return largest;
}

// Sum of p over the piece for the thread's row, of which the low part lies `low_rows`
// further (0: there is none); behind a barrier behind AddValues.
template <typename Tile>
TOKEND_DEVICE float PieceSum(const unsigned char* shared, int low_rows) {
  const auto* sums = reinterpret_cast<const float*>(shared + Tile::kSums) + threadIdx.x;
  float sum = sums[0];
  float low = sums[low_rows];
#pragma unroll
  for (int block = 1; block < Tile::kSumBlocks; ++block) {
    sum += sums[block * Tile::kRows];
    low += sums[block * Tile::kRows + low_rows];
  }
  return low_rows == 0 ? sum : sum + low;
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_MERGE_CUH_
