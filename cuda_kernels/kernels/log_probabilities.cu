#include "core/base/status_macros.h"
#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/device/shared_memory.cuh"
#include "cuda_kernels/kernels/log_probabilities.h"
#include "cuda_kernels/kernels/sampling_block.cuh"
#include "cuda_kernels/kernels/sampling_list.cuh"

namespace tokend::cuda {
namespace {

constexpr int kSliceThreads = 256;
constexpr int kSliceWarps = kSliceThreads / kWarpLanes;

constexpr int Slices(int vocabulary) { return (vocabulary + kSliceTokens - 1) / kSliceTokens; }

struct Args {
  LogProbabilityParams params;
  SliceSummary* slices;  // [rows][slice_count]
  double* sums;          // [rows][slice_count]: of exp(l - the slice's largest)
  int slice_count;
};

TOKEND_DEVICE double Exponential(double x) { return ops::ExpInRange(x < -700 ? -700 : x); }

// The same bits in every lane.
TOKEND_DEVICE double WarpSumDouble(double value) {
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

// Warp: one slice. Grid: [blocks of slices, rows].
__global__ void SumExponentialsKernel(Args args) {
  const LogProbabilityParams& params = args.params;
  const int slice = static_cast<int>(blockIdx.x) * kSliceWarps + Warp();
  const int index = static_cast<int>(blockIdx.y);
  if (slice >= args.slice_count || params.tokens[index] < 0) return;
  const float* logits = params.logits + index * params.stride;
  const int begin = slice * kSliceTokens;
  const int end = min(begin + kSliceTokens, params.vocabulary);
  int key = ops::kForbiddenKey;
  for (int i = begin + Lane(); i < end; i += kWarpLanes) key = max(key, ops::OrderKey(logits[i]));
  key = __reduce_max_sync(kAllLanes, key);
  const double largest = ops::LogitOfKey(key);
  double sum = 0;
  for (int i = begin + Lane(); i < end; i += kWarpLanes) {
    sum += Exponential(static_cast<double>(logits[i]) - largest);
  }
  sum = WarpSumDouble(sum);
  if (Lane() != 0) return;
  args.slices[index * args.slice_count + slice] = {key, INT32_MAX};
  args.sums[index * args.slice_count + slice] = sum;
}

// Sum of exp(l - max) over the row: each thread its slices, then a fixed tree.
TOKEND_DEVICE double RowSum(const SliceSummary* slices, const double* sums, int count, double max,
                            DrawShared& shared) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kDrawThreads) {
    sum += sums[i] * Exponential(static_cast<double>(ops::LogitOfKey(slices[i].key)) - max);
  }
  sum = WarpSumDouble(sum);
  auto* warps = reinterpret_cast<double*>(shared.warp_values);
  __syncthreads();
  if (Lane() == 0) warps[Warp()] = sum;
  __syncthreads();
  double total = 0;
  for (int warp = 0; warp < kDrawWarps; ++warp) total += warps[warp];
  return total;
}

// The orders of the `count` best tokens, best first, to the start of `bins`, of which a
// thread may read those at its own index, and every kDrawThreads behind it. Ties that
// overflow the list are picked one by one.
TOKEND_DEVICE void SelectTop(const Draw& draw, int count, DrawShared& shared) {
  const int listed = CollectList(draw, KeyOfRank(draw, count, shared), shared);
  if (listed <= kListCapacity) {
    SortList(listed, shared);
    return;
  }
  const OrderSource row = {draw.logits, nullptr, draw.vocabulary};
  const Weigher units = {true, 0, 1, 0, 0};
  for (int i = 0; i < count; ++i) {
    const Wide order = SelectOrder(row, units, static_cast<Wide>(i), true, shared);
    if (threadIdx.x == 0) shared.list[i] = order;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kDrawThreads) {
    shared.bins[i] = shared.list[i];
  }
}

// Block: one row.
__global__ void LogProbabilityKernel(Args args) {
  DrawShared& shared = SharedMemory<DrawShared>();
  const LogProbabilityParams& params = args.params;
  const int index = static_cast<int>(blockIdx.x);
  const int token = params.tokens[index];
  if (token < 0) return;
  Draw draw = {};
  draw.logits = params.logits + index * params.stride;
  draw.slices = args.slices + index * args.slice_count;
  draw.vocabulary = params.vocabulary;
  draw.slice_count = args.slice_count;
  const RowSummary summary =
      SummariseRow(draw.slices, args.slice_count, kDrawWarps, shared.warp_values);
  const double max = ops::LogitOfKey(ops::KeyOfOrder(summary.best));
  const double sum =
      RowSum(draw.slices, args.sums + index * args.slice_count, args.slice_count, max, shared);
  const double log_sum = max + log(sum);
  if (threadIdx.x == 0) {
    params.log_probabilities[index] =
        static_cast<float>(static_cast<double>(draw.logits[token]) - log_sum);
  }
  if (params.top_count == 0) return;
  const int count = min(params.top_count, params.vocabulary);
  SelectTop(draw, count, shared);
  for (int i = static_cast<int>(threadIdx.x); i < params.top_count; i += kDrawThreads) {
    TopToken top = {-1, 0};
    if (i < count) {
      const double logit = ops::LogitOfKey(ops::KeyOfOrder(shared.bins[i]));
      top = {ops::IdOfOrder(shared.bins[i]), static_cast<float>(logit - log_sum)};
    }
    params.top[static_cast<int64_t>(index) * params.top_count + i] = top;
  }
}

size_t SliceBytes(int rows, int vocabulary) {
  const size_t bytes =
      static_cast<size_t>(rows) * static_cast<size_t>(Slices(vocabulary)) * sizeof(SliceSummary);
  return (bytes + 15) / 16 * 16;
}

}  // namespace

size_t LogProbabilityWorkspaceBytes(int rows, int vocabulary) {
  return SliceBytes(rows, vocabulary) +
         static_cast<size_t>(rows) * static_cast<size_t>(Slices(vocabulary)) * sizeof(double);
}

absl::Status LogProbabilities(const LogProbabilityParams& params, cudaStream_t stream) {
  if (params.rows == 0) return absl::OkStatus();
  if (params.top_count < 0 || params.top_count > kMaxTopTokens) {
    return absl::InvalidArgumentError("LogProbabilities: more best tokens than it takes");
  }
  Args args;
  args.params = params;
  args.slice_count = Slices(params.vocabulary);
  args.slices = reinterpret_cast<SliceSummary*>(params.workspace);
  args.sums =
      reinterpret_cast<double*>(params.workspace + SliceBytes(params.rows, params.vocabulary));
  LaunchDims by_slice;
  by_slice.grid_x = static_cast<unsigned>((args.slice_count + kSliceWarps - 1) / kSliceWarps);
  by_slice.grid_y = static_cast<unsigned>(params.rows);
  by_slice.threads = kSliceThreads;
  TOKEND_RETURN_IF_ERROR(Launch("SumExponentials", SumExponentialsKernel, by_slice, args, stream));
  LaunchDims by_row;
  by_row.grid_x = static_cast<unsigned>(params.rows);
  by_row.threads = kDrawThreads;
  by_row.shared_bytes = sizeof(DrawShared);
  return Launch("LogProbabilities", LogProbabilityKernel, by_row, args, stream);
}

}  // namespace tokend::cuda
