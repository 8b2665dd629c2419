#include <algorithm>

#include "cuda_kernels/device/dependent_launch.cuh"
#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/device/shared_memory.cuh"
#include "cuda_kernels/kernels/attention.h"
#include "cuda_kernels/kernels/attention_dispatch.h"
#include "cuda_kernels/kernels/attention_merge.cuh"

namespace tokend::cuda {
namespace {

// What one block leaves for the last one of its row and KV head:
// out [group][head_dim], largest [group], sum [group] f32, and in the first item's slot
// the count of blocks that have finished.
struct Slot {
  float* out;
  float* largest;
  float* sum;
  unsigned* finished;
};

TOKEND_DEVICE Slot SlotAt(const AttentionParams& params, int item, int kv_head) {
  const int group = params.heads / params.kv.kv_heads;
  const int64_t index = int64_t{item} * params.kv.kv_heads + kv_head;
  Slot slot;
  slot.out = reinterpret_cast<float*>(params.workspace +
                                      index * AttentionSlotBytes(params.kv, params.heads));
  slot.largest = slot.out + group * params.kv.head_dim;
  slot.sum = slot.largest + group;
  slot.finished = reinterpret_cast<unsigned*>(slot.sum + group);
  return slot;
}

// The fold over all slots of a row, by the whole block. What other blocks wrote lies in
// L2.
TOKEND_DEVICE void MergeSlots(const AttentionParams& params, const DecodeItem& item, int64_t row,
                              int kv_head) {
  const int head_dim = params.kv.head_dim;
  const int group = params.heads / params.kv.kv_heads;
  for (int e = static_cast<int>(threadIdx.x); e < group * head_dim;
       e += static_cast<int>(blockDim.x)) {
    const int head = e / head_dim;
    RowTotal total;
    float out = 0;
#pragma unroll 4
    for (int i = 0; i < item.count; ++i) {
      const Slot slot = SlotAt(params, item.first + i, kv_head);
      const MergeFactors factors = MergeInto(__ldcg(slot.largest + head), &total.largest);
      total.sum = Merged(factors, total.sum, __ldcg(slot.sum + head));
      out = Merged(factors, out, __ldcg(slot.out + e));
    }
    StoreHalf(params.out, row, kv_head * group * head_dim + e, out * Inverse(total.sum),
              params.saturations);
  }
}

template <typename Tile>
struct DecodeBlock {
  const AttentionParams& params;
  unsigned char* shared;

  TOKEND_DEVICE int Group() const { return params.heads / params.kv.kv_heads; }

  // A row that ends in this layer: its KV, and zeros.
  TOKEND_DEVICE void End(const LayerTable& table, const SequenceEntry& sequence, int kv_head) {
    float* scratch = reinterpret_cast<float*>(shared + Tile::kScratch) + Warp() * Tile::kHeadDim;
    if (sequence.position >= table.store_begin) Append(table, sequence, kv_head, Warp(), scratch);
    const int width = Group() * Tile::kHeadDim;
    for (int e = static_cast<int>(threadIdx.x); e < width; e += Tile::kThreads) {
      StoreHalf(params.out, sequence.first_row, kv_head * width + e, 0.0f, params.saturations);
    }
  }

  // Keys by the caller with part 0, values by that with part 1.
  TOKEND_DEVICE void Append(const LayerTable& table, const SequenceEntry& sequence, int kv_head,
                            int part, float* scratch) {
    if (part == 0) {
      AppendHead<true>(params, table, sequence.first_row, sequence.position, kv_head,
                       Tile::kHeadDim, scratch);
    } else if (part == 1) {
      AppendHead<false>(params, table, sequence.first_row, sequence.position, kv_head,
                        Tile::kHeadDim, scratch);
    }
  }

  TOKEND_DEVICE void Prepare(const LayerTable& table, const SequenceEntry& sequence, int kv_head,
                             bool append, bool sinks) {
    float* scratch = reinterpret_cast<float*>(shared + Tile::kScratch) + Warp() * Tile::kHeadDim;
    const int group = Group();
    // The new keys and values first: whoever waits for them waits longest.
    for (int i = Warp(); i < Tile::kRows + 2; i += Tile::kWarps) {
      const int row = i - 2;
      if (row < 0) {
        if (append) Append(table, sequence, kv_head, i, scratch);
      } else if (row < group) {
        PrepareQuery<Tile>(params, table, sequence.first_row, sequence.position,
                           kv_head * group + row, row, -1, sinks, shared);
      } else {
        ClearQuery<Tile>(row, sinks, shared);
      }
    }
  }

  // Of a piece with out `work.out`: the row's result if it is the only piece, else into
  // its slot.
  TOKEND_DEVICE void Leave(const PieceWork<Tile>& work, const DecodeItem& item, int index,
                           int64_t row, int kv_head) {
    const int group = Group();
    const Slot slot = SlotAt(params, index, kv_head);
    const auto own = static_cast<int>(threadIdx.x);
    float* inverse = work.template At<float>(Tile::kFactors);
    if (own < group) {
      const float sum = PieceSum<Tile>(shared, 0);
      inverse[own] = Inverse(sum);
      if (item.count > 1) slot.sum[own] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < Tile::kValueColumns; ++j) {
      const int dim = (j * Tile::kWarps + Warp()) * 8 + Lane() % 4 * 2;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int head = Lane() / 4 + e / 2 * 8;
        const int at = head * Tile::kHeadDim + dim + e % 2;
        if (head >= group || dim >= Tile::kHeadDim) continue;
        if (item.count > 1) {
          slot.out[at] = work.out[0][j][e];
        } else {
          StoreHalf(params.out, row, kv_head * group * Tile::kHeadDim + at,
                    work.out[0][j][e] * inverse[head], params.saturations);
        }
      }
    }
  }

  // True in the row's last block.
  TOKEND_DEVICE bool FinishedLast(const DecodeItem& item, int kv_head) {
    int* last = reinterpret_cast<int*>(shared + Tile::kRowMax);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned* finished = SlotAt(params, item.first, kv_head).finished;
      *last = atomicAdd(finished, 1u) + 1 == static_cast<unsigned>(item.count);
      if (*last) *finished = 0;
    }
    __syncthreads();
    if (!*last) return false;
    __threadfence();
    return true;
  }

  TOKEND_DEVICE void Attend(const DecodeItem& item, int index, const LayerTable& table,
                            const SequenceEntry& sequence, int kv_head) {
    const int64_t p = sequence.position;
    const RowView seen = ViewOf(table, p, p, item.piece);
    const bool newest = index == item.first + item.count - 1;
    const bool sinks = p > table.sink_position && seen.sink_begin < seen.sink_end;
    TileFeed<Tile> feed{params, table, shared, kv_head, p, p, {0, 0, item.piece, 1}};
    if (!newest) Start(&feed);
    Prepare(table, sequence, kv_head, newest && p >= table.store_begin, sinks);
    const auto own = static_cast<int>(threadIdx.x);
    if (own < Tile::kRows) {
      reinterpret_cast<RowView*>(shared + Tile::kViews)[own] = own < Group() ? seen : RowView{};
    }
    if (newest) {
      __syncthreads();
      Start(&feed);
    }
    PieceWork<Tile> work{params, shared, sinks, false};
    work.Score(seen, &feed);
    __syncthreads();
    if (own < Tile::kRows) {
      const float largest = PublishMax<Tile>(shared);
      if (own < Group() && item.count > 1) SlotAt(params, index, kv_head).largest[own] = largest;
    }
    __syncthreads();
    work.Weigh();
    work.AddValues(seen, &feed);
    __syncthreads();
    Leave(work, item, index, sequence.first_row, kv_head);
    if (item.count > 1 && FinishedLast(item, kv_head)) {
      MergeSlots(params, item, sequence.first_row, kv_head);
    }
  }

  TOKEND_DEVICE static void Start(TileFeed<Tile>* feed) {
#pragma unroll 1
    for (int i = 0; i < Tile::kStages - 1; ++i) feed->Issue();
  }
};

// Block: pieces of a sequence's KV head, from the layer's list of items.
template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) DecodeAttentionKernel(AttentionParams params) {
  AllowNextKernel();
  WaitForPreviousKernel();
  unsigned char* shared = SharedArray<unsigned char>(0, Tile::kBytes);
  const LayerLists lists = params.step.lists[params.layer];
  const auto* items = reinterpret_cast<const DecodeItem*>(params.step.words + lists.decode_items);
  const int kv_heads = params.kv.kv_heads;
  DecodeBlock<Tile> block{params, shared};
  for (int i = static_cast<int>(blockIdx.x); i < lists.decode_count * kv_heads;
       i += static_cast<int>(gridDim.x)) {
    const int index = i / kv_heads;
    const int kv_head = i % kv_heads;
    const DecodeItem item = items[index];
    const SequenceEntry sequence = params.step.sequences[item.sequence];
    const LayerTable table =
        params.step.tables[int64_t{item.sequence} * params.step.layers + params.layer];
    if (item.piece < 0) {
      block.End(table, sequence, kv_head);
    } else {
      block.Attend(item, index, table, sequence, kv_head);
    }
    __syncthreads();
  }
}

// About 32 KiB of keys and values on their way.
template <int kHeadDim, bool kInt8>
constexpr int DecodeStages() {
  const int tile = kHeadDim * (kHeadDim > 128 ? 32 : 64) * (kInt8 ? 1 : 2);
  return std::clamp(32 * 1024 / tile, 2, 4);
}

struct LaunchDecode {
  const AttentionParams& params;
  unsigned blocks;
  bool dependent;
  cudaStream_t stream;

  template <int kHeadDim, bool kInt8>
  absl::Status Run() const {
    using Tile = AttentionTile<kHeadDim, kInt8, 4, 1, DecodeStages<kHeadDim, kInt8>()>;
    LaunchDims dims;
    dims.grid_x = blocks;
    dims.threads = Tile::kThreads;
    dims.shared_bytes = Tile::kBytes;
    dims.dependent = dependent;
    return Launch("DecodeAttention", DecodeAttentionKernel<Tile>, dims, params, stream);
  }
};

}  // namespace

absl::Status DecodeAttention(const AttentionParams& params, const AttentionDevice& device,
                             int max_items, cudaStream_t stream) {
  if (max_items == 0) return absl::OkStatus();
  const int64_t work = int64_t{max_items} * params.kv.kv_heads;
  const int64_t room = int64_t{2} * device.multiprocessors;
  return DispatchAttention(params, LaunchDecode{params, static_cast<unsigned>(std::min(work, room)),
                                                device.dependent_launch, stream});
}

}  // namespace tokend::cuda
