// What one block does for one row's draw: sums, selections by running weight.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_SAMPLING_BLOCK_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_SAMPLING_BLOCK_CUH_

#include "core/ops/sampling_math.h"
#include "cuda_kernels/device/platform.cuh"

namespace tokend::cuda {

using Wide = unsigned long long;  // as CUDA's atomics and shuffles want it

inline constexpr int kSliceTokens = 128;  // consecutive tokens that a warp summarises
inline constexpr int kDrawThreads = 512;
inline constexpr int kDrawWarps = kDrawThreads / kWarpLanes;
inline constexpr int kListCapacity = 2048;
inline constexpr int kDigitBits = 11;
inline constexpr int kBins = 1 << kDigitBits;
inline constexpr int kPerThread = kBins / kDrawThreads;
static_assert(kBins == kListCapacity);

struct SliceSummary {
  int32_t key;  // the largest ops::OrderKey
  int32_t bad;  // first token whose logit is not finite; INT32_MAX: none
};

struct DrawShared {
  Wide bins[kBins];          // histogram; then the list in order
  Wide list[kListCapacity];  // ops::OrderOf of some tokens; then running weights
  Wide warp_values[kDrawWarps];
  Wide bin_before;
  int bin;
  int first;
  int list_count;
};

struct Scan {
  Wide before;  // sum of the threads before
  Wide total;
};

// All threads of the block. Starts with a barrier.
TOKEND_DEVICE Scan BlockScan(Wide value, DrawShared& shared) {
  Wide inclusive = value;
#pragma unroll
  for (int offset = 1; offset < kWarpLanes; offset *= 2) {
    const Wide below = __shfl_up_sync(kAllLanes, inclusive, offset);
    if (Lane() >= offset) inclusive += below;
  }
  __syncthreads();
  if (Lane() == kWarpLanes - 1) shared.warp_values[Warp()] = inclusive;
  __syncthreads();
  Scan scan = {inclusive - value, 0};
  for (int warp = 0; warp < kDrawWarps; ++warp) {
    const Wide sum = shared.warp_values[warp];
    if (warp < Warp()) scan.before += sum;
    scan.total += sum;
  }
  return scan;
}

TOKEND_DEVICE Wide WarpMax(Wide value) {
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    const Wide other = __shfl_xor_sync(kAllLanes, value, offset);
    if (other > value) value = other;
  }
  return value;
}

// Of a block of `warps` warps. Starts with a barrier.
TOKEND_DEVICE Wide BlockMax(Wide value, int warps, Wide* warp_values) {
  const Wide own = WarpMax(value);
  __syncthreads();
  if (Lane() == 0) warp_values[Warp()] = own;
  __syncthreads();
  Wide max = 0;
  for (int warp = 0; warp < warps; ++warp) {
    if (warp_values[warp] > max) max = warp_values[warp];
  }
  return max;
}

// The summary of a row: OrderOf(largest key, its first slice), and the first bad token.
struct RowSummary {
  Wide best;
  int32_t bad;
};

TOKEND_DEVICE RowSummary SummariseRow(const SliceSummary* slices, int count, int warps,
                                      Wide* warp_values) {
  Wide best = 0;
  Wide worst = 0;  // complement of the first bad token
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const Wide order = ops::OrderOf(slices[i].key, i);
    if (order > best) best = order;
    const Wide bad = static_cast<Wide>(INT32_MAX - slices[i].bad);
    if (bad > worst) worst = bad;
  }
  RowSummary summary;
  summary.best = BlockMax(best, warps, warp_values);
  summary.bad = INT32_MAX - static_cast<int32_t>(BlockMax(worst, warps, warp_values));
  return summary;
}

// Orders to choose from: those of a row's tokens, or of the slices' largest ones.
struct OrderSource {
  const float* logits;  // or nullptr:
  const SliceSummary* slices;
  int count;

  TOKEND_DEVICE Wide At(int i) const {
    return ops::OrderOf(logits == nullptr ? slices[i].key : ops::OrderKey(logits[i]), i);
  }
};

struct Weigher {
  bool units;  // every order weighs 1
  float max;
  double temperature;
  Wide cut;    // orders below weigh nothing
  Wide least;  // weights below are nothing

  TOKEND_DEVICE Wide Weigh(Wide order) const {
    if (order < cut) return 0;
    if (units) return 1;
    const Wide weight = ops::TokenWeight(ops::LogitOfKey(ops::KeyOfOrder(order)), max, temperature);
    return weight < least ? 0 : weight;
  }
};

TOKEND_DEVICE Wide TotalWeight(const OrderSource& source, const Weigher& weigher,
                               DrawShared& shared) {
  Wide sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < source.count; i += kDrawThreads) {
    sum += weigher.Weigh(source.At(i));
  }
  return BlockScan(sum, shared).total;
}

// Adds the weights of those whose bits above the digit are `prefix`'s to the digit's bin.
TOKEND_DEVICE void FillBins(const OrderSource& source, const Weigher& weigher, Wide prefix,
                            int shift, int bits, DrawShared& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kDrawThreads) shared.bins[i] = 0;
  __syncthreads();
  const Wide mask = (Wide{1} << bits) - 1;
  const bool first = shift + bits == 64;
  for (int i = static_cast<int>(threadIdx.x); i < source.count; i += kDrawThreads) {
    const Wide order = source.At(i);
    if (!first && (order ^ prefix) >> (shift + bits) != 0) continue;
    const Wide weight = weigher.Weigh(order);
    if (weight != 0) atomicAdd(&shared.bins[order >> shift & mask], weight);
  }
  __syncthreads();
}

// From the highest bin down, the first whose running weight passes `target`: leaves it
// and the weight before it in `shared`.
TOKEND_DEVICE void FindBin(Wide target, DrawShared& shared) {
  const int top = kBins - 1 - kPerThread * static_cast<int>(threadIdx.x);
  Wide own = 0;
  for (int i = 0; i < kPerThread; ++i) own += shared.bins[top - i];
  Wide before = BlockScan(own, shared).before;
  if (before <= target && target < before + own) {
    int bin = top;
    while (target >= before + shared.bins[bin]) before += shared.bins[bin--];
    shared.bin = bin;
    shared.bin_before = before;
  }
  __syncthreads();
}

// In descending order the first whose running weight passes `target`, which is below
// the total; not `whole`: only its key, the low half zero. Digit by digit from the top:
// 11, 11 and 10 bits of the key, then as many of the id.
TOKEND_DEVICE Wide SelectOrder(const OrderSource& source, const Weigher& weigher, Wide target,
                               bool whole, DrawShared& shared) {
  Wide prefix = 0;
  int shift = 64;
  for (int digit = 0; digit < (whole ? 6 : 3); ++digit) {
    const int bits = digit % 3 == 2 ? kDigitBits - 1 : kDigitBits;
    shift -= bits;
    FillBins(source, weigher, prefix, shift, bits, shared);
    FindBin(target, shared);
    prefix |= static_cast<Wide>(shared.bin) << shift;
    target -= shared.bin_before;
  }
  return prefix;
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_SAMPLING_BLOCK_CUH_
