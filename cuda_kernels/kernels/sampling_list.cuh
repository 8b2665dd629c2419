// A draw among the few tokens that can be drawn, kept in shared memory.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_SAMPLING_LIST_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_SAMPLING_LIST_CUH_

#include "cuda_kernels/kernels/sampling.h"
#include "cuda_kernels/kernels/sampling_block.cuh"

namespace tokend::cuda {

// One row's draw.
struct Draw {
  SamplingRow params;
  const float* logits;         // [vocabulary]
  const SliceSummary* slices;  // [slice_count]
  int vocabulary;
  int slice_count;
  float max;
  Wide row_total;  // of all tokens' weights, where NeedsTotal
  Wide random;
};

TOKEND_DEVICE bool LimitsCount(const SamplingRow& params, int vocabulary) {
  return params.top_k > 0 && params.top_k < vocabulary;
}

// The draw cannot do without the sum over the vocabulary.
TOKEND_DEVICE bool NeedsTotal(const SamplingRow& params, int vocabulary) {
  return params.temperature > 0 && !LimitsCount(params, vocabulary) &&
         (params.top_p < 1 || params.min_p <= 0);
}

// Where `holds`, once true, stays true: the first i below `count` for which it is;
// `count` if there is none.
template <typename Predicate>
TOKEND_DEVICE int FirstWhere(int count, DrawShared& shared, Predicate holds) {
  __syncthreads();
  if (threadIdx.x == 0) shared.first = count;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kDrawThreads) {
    if (holds(i) && (i == 0 || !holds(i - 1))) shared.first = i;
  }
  __syncthreads();
  return shared.first;
}

// All tokens with a key of at least `threshold` into the list, in no order; their
// count may exceed what the list holds.
TOKEND_DEVICE int CollectList(const Draw& draw, int32_t threshold, DrawShared& shared) {
  __syncthreads();
  if (threadIdx.x == 0) shared.list_count = 0;
  __syncthreads();
  for (int slice = Warp(); slice < draw.slice_count; slice += kDrawWarps) {
    if (draw.slices[slice].key < threshold) continue;
    for (int i = Lane(); i < kSliceTokens; i += kWarpLanes) {
      const int id = slice * kSliceTokens + i;
      if (id >= draw.vocabulary) continue;
      const int32_t key = ops::OrderKey(draw.logits[id]);
      if (key < threshold) continue;
      const int at = atomicAdd(&shared.list_count, 1);
      if (at < kListCapacity) shared.list[at] = ops::OrderOf(key, id);
    }
  }
  __syncthreads();
  return shared.list_count;
}

// A key that at least `rank` tokens reach, close to the rank-th largest one;
// kForbiddenKey + 1: that of every token that is allowed.
TOKEND_DEVICE int32_t KeyOfRank(const Draw& draw, int rank, DrawShared& shared) {
  if (draw.vocabulary <= kListCapacity || rank > kListCapacity) return ops::kForbiddenKey + 1;
  // As many slices as wanted tokens have a largest key of at least the one found.
  const bool by_slices = rank <= draw.slice_count;
  const OrderSource source = {by_slices ? nullptr : draw.logits, draw.slices,
                              by_slices ? draw.slice_count : draw.vocabulary};
  const Weigher units = {true, 0, 1, 0, 0};
  const Wide order = SelectOrder(source, units, static_cast<Wide>(rank - 1), false, shared);
  return max(ops::KeyOfOrder(order), ops::kForbiddenKey + 1);
}

// The list in descending order to `bins`.
TOKEND_DEVICE void SortList(int count, DrawShared& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kDrawThreads) {
    const Wide own = shared.list[i];
    int rank = 0;
    for (int j = 0; j < count; ++j) rank += shared.list[j] > own ? 1 : 0;
    shared.bins[rank] = own;
  }
  __syncthreads();
}

// The list in descending order to `bins`, its running weights, each included, to `list`.
TOKEND_DEVICE void SortAndWeigh(const Draw& draw, int count, DrawShared& shared) {
  SortList(count, shared);
  const Weigher weigher = {false, draw.max, draw.params.temperature, 0, 0};
  const int first = kPerThread * static_cast<int>(threadIdx.x);
  Wide running[kPerThread];
  Wide sum = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    if (first + i < count) sum += weigher.Weigh(shared.bins[first + i]);
    running[i] = sum;
  }
  const Wide before = BlockScan(sum, shared).before;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) shared.list[first + i] = before + running[i];
  __syncthreads();
}

// The token; -1: it may be one outside the list. `complete`: there is none.
TOKEND_DEVICE int DrawFromList(const Draw& draw, int count, bool complete, DrawShared& shared) {
  SortAndWeigh(draw, count, shared);
  const SamplingRow& params = draw.params;
  const bool counted = LimitsCount(params, draw.vocabulary);
  int kept = count;
  if (counted) {
    const int32_t last = ops::KeyOfOrder(shared.bins[min(params.top_k, count) - 1]);
    kept = FirstWhere(count, shared, [&](int i) { return ops::KeyOfOrder(shared.bins[i]) < last; });
  }
  const bool open = !complete && !counted;
  Wide total = open ? draw.row_total : shared.list[kept - 1];
  if (params.top_p < 1) {
    const Wide target = ops::NucleusTarget(total, params.top_p);
    const int last = FirstWhere(kept, shared, [&](int i) { return shared.list[i] > target; });
    if (last == kept) return -1;
    kept = last + 1;
    total = shared.list[last];
  }
  if (params.min_p > 0) {
    const Wide least = ops::LeastWeight(params.min_p);
    const int end = FirstWhere(kept, shared, [&](int i) {
      return shared.list[i] - (i == 0 ? 0 : shared.list[i - 1]) < least;
    });
    if (open && params.top_p >= 1 && end == kept) return -1;
    kept = end;
    total = shared.list[kept - 1];
  }
  const Wide target = ops::DrawTarget(total, draw.random);
  const int drawn = FirstWhere(kept, shared, [&](int i) { return shared.list[i] > target; });
  return drawn == kept ? -1 : ops::IdOfOrder(shared.bins[drawn]);
}

// The same by selections over the whole row.
TOKEND_DEVICE int DrawFromRow(const Draw& draw, DrawShared& shared) {
  const SamplingRow& params = draw.params;
  const OrderSource row = {draw.logits, nullptr, draw.vocabulary};
  Weigher weigher = {false, draw.max, params.temperature, 0, 0};
  if (LimitsCount(params, draw.vocabulary)) {
    const Weigher units = {true, 0, 1, 0, 0};
    weigher.cut = SelectOrder(row, units, static_cast<Wide>(params.top_k - 1), false, shared);
  }
  Wide total =
      NeedsTotal(params, draw.vocabulary) ? draw.row_total : TotalWeight(row, weigher, shared);
  if (params.top_p < 1) {
    weigher.cut = SelectOrder(row, weigher, ops::NucleusTarget(total, params.top_p), true, shared);
  }
  if (params.min_p > 0) weigher.least = ops::LeastWeight(params.min_p);
  if (params.top_p < 1 || params.min_p > 0) total = TotalWeight(row, weigher, shared);
  return ops::IdOfOrder(
      SelectOrder(row, weigher, ops::DrawTarget(total, draw.random), true, shared));
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_SAMPLING_LIST_CUH_
