#include <algorithm>

#include "absl/status/status.h"
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
template <int kHeadDim>
TOKEND_DEVICE void MergeSlots(const AttentionParams& params, const DecodeItem& item, int64_t row,
                              int kv_head) {
  const int group = params.heads / params.kv.kv_heads;
  const Slot first = SlotAt(params, item.first, kv_head);
  const int64_t stride =
      params.kv.kv_heads * AttentionSlotBytes(params.kv, params.heads) / int64_t{sizeof(float)};
  for (int e = static_cast<int>(threadIdx.x); e < group * kHeadDim;
       e += static_cast<int>(blockDim.x)) {
    const int head = e / kHeadDim;
    RowTotal total;
    float out = 0;
#pragma unroll 2
    for (int i = 0; i < item.count; ++i) {
      const int64_t at = i * stride;
      const MergeFactors factors = MergeInto(__ldcg(first.largest + at + head), &total.largest);
      total.sum = Merged(factors, total.sum, __ldcg(first.sum + at + head));
      out = Merged(factors, out, __ldcg(first.out + at + e));
    }
    StoreHalf(params.out, row, kv_head * group * kHeadDim + e, out * Inverse(total.sum),
              params.saturations);
  }
}

template <typename Tile>
struct DecodeBlock {
  const AttentionParams& params;
  unsigned char* shared;
  int stages;

  TOKEND_DEVICE int Group() const { return params.heads / params.kv.kv_heads; }

  TOKEND_DEVICE float* Scratch() const {
    return reinterpret_cast<float*>(shared + Tile::kScratch) + Warp() * Tile::kHeadDim;
  }

  // Of a row that ends in this layer.
  TOKEND_DEVICE void StoreZeros(int64_t row, int kv_head) {
    const int width = Group() * Tile::kHeadDim;
    for (int e = static_cast<int>(threadIdx.x); e < width; e += Tile::kThreads) {
      params.out.hi[row * params.out.stride + kv_head * width + e] = __ushort_as_half(0);
    }
  }

  // The first warps may be busy with new keys and values.
  TOKEND_DEVICE void PrepareQueries(const LayerTable& table, const SequenceEntry& sequence,
                                    int kv_head, bool sinks) {
    const int group = Group();
#pragma unroll 1
    for (int row = (Warp() + 2) % Tile::kWarps; row < Tile::kRows; row += Tile::kWarps) {
      if (row < group) {
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
    const bool newest = item.piece < 0 || index == item.first + item.count - 1;
    if (newest && p >= table.store_begin && Warp() < 2) {
      AppendHead(params, table, sequence.first_row, p, kv_head, Warp() == 0, Tile::kHeadDim,
                 Tile::kInt8, Scratch());
    }
    if (item.piece < 0) return StoreZeros(sequence.first_row, kv_head);
    const RowView seen = ViewOf(table, p, p, item.piece);
    const bool sinks = p > table.sink_position && seen.sink_begin < seen.sink_end;
    TileFeed<Tile> feed{params, table, shared, stages, kv_head, p, p, {0, 0, item.piece, 1}};
    const auto own = static_cast<int>(threadIdx.x);
    // The newest piece's copies must wait for its keys and values.
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
      if (turn == (newest ? 1 : 0)) {
#pragma unroll 1
        for (int i = 0; i < stages - 1; ++i) feed.Issue();
      }
      if (turn > 0) break;
      PrepareQueries(table, sequence, kv_head, sinks);
      if (own < Tile::kRows) {
        reinterpret_cast<RowView*>(shared + Tile::kViews)[own] = own < Group() ? seen : RowView{};
      }
      if (newest) __syncthreads();
    }
    PieceWork<Tile> work{params, shared, stages, sinks, false};
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
      MergeSlots<Tile::kHeadDim>(params, item, sequence.first_row, kv_head);
    }
  }
};

// Block: pieces of a sequence's KV head, from the layer's list of items.
template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) DecodeAttentionKernel(AttentionLaunch launch) {
  const AttentionParams& params = launch.params;
  AllowNextKernel();
  WaitForPreviousKernel();
  unsigned char* shared = SharedArray<unsigned char>(0, Tile::SharedBytes(launch.stages));
  const LayerLists lists = params.step.lists[params.layer];
  const auto* items = reinterpret_cast<const DecodeItem*>(params.step.words + lists.decode_items);
  const int kv_heads = params.kv.kv_heads;
  DecodeBlock<Tile> block{params, shared, launch.stages};
  for (int i = static_cast<int>(blockIdx.x); i < lists.decode_count * kv_heads;
       i += static_cast<int>(gridDim.x)) {
    const int index = i / kv_heads;
    const int kv_head = i % kv_heads;
    const DecodeItem item = items[index];
    const SequenceEntry sequence = params.step.sequences[item.sequence];
    const LayerTable table =
        params.step.tables[int64_t{item.sequence} * params.step.layers + params.layer];
    // Its last barrier is behind all that the next item overwrites.
    block.Attend(item, index, table, sequence, kv_head);
  }
}

struct LaunchDecode {
  const AttentionParams& params;
  const DeviceInfo& device;
  unsigned blocks;
  cudaStream_t stream;

  template <int kHeadDim, bool kInt8>
  absl::Status Run() const {
    using Tile = AttentionTile<kHeadDim, kInt8, 4, 1>;
    // Half a multiprocessor holds the block; its ring may hold a whole piece.
    const int room =
        static_cast<int>(device.shared_bytes_per_multiprocessor) / 2 - kReservedSharedBytes;
    const int stages = std::clamp((room - Tile::kRing) / Tile::kStageBytes, kMinStages, kMaxStages);
    LaunchDims dims;
    dims.grid_x = blocks;
    dims.threads = Tile::kThreads;
    dims.shared_bytes = Tile::SharedBytes(stages);
    dims.dependent = device.dependent_launch;
    return Launch("DecodeAttention", DecodeAttentionKernel<Tile>, dims,
                  AttentionLaunch{params, stages}, stream);
  }
};

}  // namespace

absl::Status DecodeAttention(const AttentionParams& params, const DeviceInfo& device, int max_items,
                             cudaStream_t stream) {
  if (max_items == 0) return absl::OkStatus();
  if (params.workspace_bytes < AttentionWorkspaceBytes(params.kv, params.heads, max_items)) {
    return absl::InvalidArgumentError("cuda: DecodeAttention's workspace is too small");
  }
  const int64_t work = int64_t{max_items} * params.kv.kv_heads;
  const int64_t room = int64_t{2} * device.multiprocessors;
  const auto blocks = static_cast<unsigned>(std::min(work, room));
  return DispatchAttention(params, LaunchDecode{params, device, blocks, stream});
}

}  // namespace tokend::cuda
