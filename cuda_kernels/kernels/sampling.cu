#include "core/base/status_macros.h"
#include "core/ops/philox.h"
#include "core/ops/sampling_math.h"
#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/device/shared_memory.cuh"
#include "cuda_kernels/kernels/sampling.h"
#include "cuda_kernels/kernels/sampling_block.cuh"
#include "cuda_kernels/kernels/sampling_list.cuh"

namespace tokend::cuda {
namespace {

constexpr int kSliceThreads = 256;
constexpr int kSliceWarps = kSliceThreads / kWarpLanes;
// Without top-k: so many of the best tokens are looked at first.
constexpr int kFirstTry = 512;

constexpr int Slices(int vocabulary) { return (vocabulary + kSliceTokens - 1) / kSliceTokens; }

// Where the parts of the workspace lie.
struct Workspace {
  SliceSummary* slices;  // [rows][Slices]
  Wide* sums;            // [rows][Slices]: of weights
  float* saved;          // [adjustments], then [rows]: logits before they were adjusted
};

struct Args {
  SampleParams params;
  Workspace workspace;
  int slices;
};

TOKEND_DEVICE bool IsFinite(float value) { return value - value == 0; }

// ---- Bias and penalties ----

// A logit of the model, as adjusted. Minus infinity of the model's own becomes NaN, lest
// it pass for a forbidden token.
TOKEND_DEVICE float Adjusted(float logit, const SamplingRow& row, float bias, int in_window,
                             int in_output) {
  if (!IsFinite(logit)) return nanf("");
  logit = ops::ApplyBias(logit, bias);
  if (logit == ops::kForbiddenLogit) return logit;
  if (in_window > 0) logit = ops::ApplyRepetition(logit, row.repetition_penalty);
  if (in_output > 0) {
    logit =
        ops::ApplyOutputPenalties(logit, row.frequency_penalty, row.presence_penalty, in_output);
  }
  return logit;
}

// The row's adjustment of `token`; nullptr: it has none.
TOKEND_DEVICE const TokenAdjustment* FindAdjustment(const SampleParams& params,
                                                    const SamplingRow& row, int token) {
  const TokenAdjustment* list = params.adjustments + row.first_adjustment;
  int low = 0;
  int high = row.adjustment_count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (list[middle].token < token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < row.adjustment_count && list[low].token == token ? list + low : nullptr;
}

// Block: one row.
__global__ void AdjustKernel(Args args) {
  const SampleParams& params = args.params;
  const int index = static_cast<int>(blockIdx.x);
  const SamplingRow row = params.row_params[index];
  float* logits = params.logits + index * params.stride;
  const int newest = params.newest == nullptr ? -1 : params.newest[index];
  for (int i = static_cast<int>(threadIdx.x); i < row.adjustment_count; i += kSliceThreads) {
    const TokenAdjustment own = params.adjustments[row.first_adjustment + i];
    const int more = own.token == newest ? 1 : 0;
    args.workspace.saved[row.first_adjustment + i] = logits[own.token];
    logits[own.token] =
        Adjusted(logits[own.token], row, own.bias, own.in_window + more, own.in_output + more);
  }
  if (threadIdx.x != 0 || newest < 0) return;
  if (FindAdjustment(params, row, newest) != nullptr) return;
  args.workspace.saved[params.adjustment_capacity + index] = logits[newest];
  logits[newest] = Adjusted(logits[newest], row, 0, 1, 1);
}

// Block: one row. Undoes the above.
__global__ void RestoreKernel(Args args) {
  const SampleParams& params = args.params;
  const int index = static_cast<int>(blockIdx.x);
  const SamplingRow row = params.row_params[index];
  float* logits = params.logits + index * params.stride;
  const int newest = params.newest == nullptr ? -1 : params.newest[index];
  for (int i = static_cast<int>(threadIdx.x); i < row.adjustment_count; i += kSliceThreads) {
    logits[params.adjustments[row.first_adjustment + i].token] =
        args.workspace.saved[row.first_adjustment + i];
  }
  if (threadIdx.x != 0 || newest < 0) return;
  if (FindAdjustment(params, row, newest) != nullptr) return;
  logits[newest] = args.workspace.saved[params.adjustment_capacity + index];
}

TOKEND_DEVICE bool IsForbidden(const SampleParams& params, const SamplingRow& row, int token) {
  if (params.adjustment_capacity == 0) return false;
  const TokenAdjustment* found = FindAdjustment(params, row, token);
  return found != nullptr && found->bias <= ops::kForbiddingBias;
}

// ---- Summaries of slices ----

// Warp: one slice. Grid: [blocks of slices, rows].
__global__ void SummariseKernel(Args args) {
  const SampleParams& params = args.params;
  const int slice = static_cast<int>(blockIdx.x) * kSliceWarps + Warp();
  if (slice >= args.slices) return;
  const int index = static_cast<int>(blockIdx.y);
  const float* logits = params.logits + index * params.stride;
  int key = ops::kForbiddenKey;
  int bad = INT32_MAX;
  for (int i = Lane(); i < kSliceTokens; i += kWarpLanes) {
    const int id = slice * kSliceTokens + i;
    if (id >= params.vocabulary) continue;
    const float logit = logits[id];
    if (!IsFinite(logit) &&
        !(logit == ops::kForbiddenLogit && IsForbidden(params, params.row_params[index], id))) {
      bad = min(bad, id);
    } else {
      key = max(key, ops::OrderKey(logit));
    }
  }
  key = __reduce_max_sync(kAllLanes, key);
  bad = __reduce_min_sync(kAllLanes, bad);
  if (Lane() == 0) args.workspace.slices[index * args.slices + slice] = {key, bad};
}

// Warp: one slice's sum of weights, in rows that need it.
__global__ void SumWeightsKernel(Args args) {
  const SampleParams& params = args.params;
  const int index = static_cast<int>(blockIdx.y);
  const SamplingRow row = params.row_params[index];
  if (!NeedsTotal(row, params.vocabulary)) return;
  Wide* warp_values = SharedArray<Wide>(0, kSliceWarps);
  const SliceSummary* slices = args.workspace.slices + index * args.slices;
  const RowSummary summary = SummariseRow(slices, args.slices, kSliceWarps, warp_values);
  if (summary.bad != INT32_MAX) return;
  const float top = ops::LogitOfKey(ops::KeyOfOrder(summary.best));
  const int slice = static_cast<int>(blockIdx.x) * kSliceWarps + Warp();
  if (slice >= args.slices) return;
  const float* logits = params.logits + index * params.stride;
  Wide sum = 0;
  for (int i = Lane(); i < kSliceTokens; i += kWarpLanes) {
    const int id = slice * kSliceTokens + i;
    if (id < params.vocabulary) sum += ops::TokenWeight(logits[id], top, row.temperature);
  }
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, offset);
  }
  if (Lane() == 0) args.workspace.sums[index * args.slices + slice] = sum;
}

// ---- The draw ----

// The first token of `slice` with `key`. All lanes of a warp.
TOKEND_DEVICE int FindKey(const float* logits, int vocabulary, int slice, int32_t key) {
  int first = INT32_MAX;
  for (int i = Lane(); i < kSliceTokens; i += kWarpLanes) {
    const int id = slice * kSliceTokens + i;
    if (id < vocabulary && ops::OrderKey(logits[id]) == key) first = min(first, id);
  }
  return __reduce_min_sync(kAllLanes, first);
}

TOKEND_DEVICE int DrawToken(const Draw& draw, DrawShared& shared) {
  const int wanted = LimitsCount(draw.params, draw.vocabulary) ? draw.params.top_k : kFirstTry;
  const int32_t threshold = KeyOfRank(draw, wanted, shared);
  const int count = CollectList(draw, threshold, shared);
  if (count <= kListCapacity) {
    const bool complete = threshold == ops::kForbiddenKey + 1;
    const int token = DrawFromList(draw, count, complete, shared);
    if (token >= 0) return token;
  }
  return DrawFromRow(draw, shared);
}

// Block: one row.
__global__ void DrawKernel(Args args) {
  DrawShared& shared = SharedMemory<DrawShared>();
  const SampleParams& params = args.params;
  const int index = static_cast<int>(blockIdx.x);
  const SliceSummary* slices = args.workspace.slices + index * args.slices;
  const RowSummary summary = SummariseRow(slices, args.slices, kDrawWarps, shared.warp_values);
  Draw draw;
  draw.params = params.row_params[index];
  draw.logits = params.logits + index * params.stride;
  draw.slices = slices;
  draw.vocabulary = params.vocabulary;
  draw.slice_count = args.slices;
  const int32_t key = ops::KeyOfOrder(summary.best);
  draw.max = ops::LogitOfKey(key);
  draw.random = ops::RandomBits(draw.params.seed, draw.params.position);
  int token;
  if (summary.bad != INT32_MAX) {
    token = -1 - summary.bad;
  } else if (key == ops::kForbiddenKey) {
    token = kEveryTokenForbidden;
  } else if (draw.params.temperature == 0) {
    token = FindKey(draw.logits, draw.vocabulary, ops::IdOfOrder(summary.best), key);
  } else {
    Wide sum = 0;
    if (NeedsTotal(draw.params, draw.vocabulary)) {
      const Wide* sums = args.workspace.sums + index * args.slices;
      for (int i = static_cast<int>(threadIdx.x); i < args.slices; i += kDrawThreads) {
        sum += sums[i];
      }
    }
    draw.row_total = BlockScan(sum, shared).total;
    token = DrawToken(draw, shared);
  }
  if (threadIdx.x == 0) params.tokens[index] = token;
}

size_t Aligned(size_t bytes) { return (bytes + 15) / 16 * 16; }

size_t SliceCount(int rows, int vocabulary) {
  return static_cast<size_t>(rows) * static_cast<size_t>(Slices(vocabulary));
}

}  // namespace

SamplingRow MakeSamplingRow(const ops::SamplingParams& params, int64_t position) {
  SamplingRow row;
  row.seed = params.seed;
  row.position = position;
  row.temperature = params.temperature;
  row.top_k = params.top_k;
  row.top_p = params.top_p;
  row.min_p = params.min_p;
  row.repetition_penalty = params.repetition_penalty;
  row.presence_penalty = params.presence_penalty;
  row.frequency_penalty = params.frequency_penalty;
  return row;
}

size_t SamplingWorkspaceBytes(int rows, int vocabulary, int adjustment_capacity) {
  const size_t slices = SliceCount(rows, vocabulary);
  return Aligned(slices * sizeof(SliceSummary)) + Aligned(slices * sizeof(Wide)) +
         Aligned(static_cast<size_t>(adjustment_capacity + rows) * sizeof(float));
}

absl::Status SampleRows(const SampleParams& params, cudaStream_t stream) {
  if (params.rows == 0) return absl::OkStatus();
  Args args;
  args.params = params;
  args.slices = Slices(params.vocabulary);
  const size_t slices = SliceCount(params.rows, params.vocabulary);
  unsigned char* at = params.workspace;
  args.workspace.slices = reinterpret_cast<SliceSummary*>(at);
  at += Aligned(slices * sizeof(SliceSummary));
  args.workspace.sums = reinterpret_cast<Wide*>(at);
  at += Aligned(slices * sizeof(Wide));
  args.workspace.saved = reinterpret_cast<float*>(at);

  LaunchDims by_row;
  by_row.grid_x = static_cast<unsigned>(params.rows);
  by_row.threads = kSliceThreads;
  LaunchDims by_slice = by_row;
  by_slice.grid_x = static_cast<unsigned>((args.slices + kSliceWarps - 1) / kSliceWarps);
  by_slice.grid_y = static_cast<unsigned>(params.rows);
  by_slice.shared_bytes = kSliceWarps * sizeof(Wide);
  LaunchDims draw = by_row;
  draw.threads = kDrawThreads;
  draw.shared_bytes = sizeof(DrawShared);
  const bool adjusted = params.adjustment_capacity > 0;
  if (adjusted) {
    TOKEND_RETURN_IF_ERROR(Launch("AdjustLogits", AdjustKernel, by_row, args, stream));
  }
  TOKEND_RETURN_IF_ERROR(Launch("SummariseLogits", SummariseKernel, by_slice, args, stream));
  TOKEND_RETURN_IF_ERROR(Launch("SumWeights", SumWeightsKernel, by_slice, args, stream));
  TOKEND_RETURN_IF_ERROR(Launch("DrawTokens", DrawKernel, draw, args, stream));
  if (!adjusted) return absl::OkStatus();
  return Launch("RestoreLogits", RestoreKernel, by_row, args, stream);
}

}  // namespace tokend::cuda
