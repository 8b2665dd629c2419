#include "cuda_kernels/device/dependent_launch.cuh"
#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/device/shared_memory.cuh"
#include "cuda_kernels/kernels/attention.h"
#include "cuda_kernels/kernels/attention_dispatch.h"
#include "cuda_kernels/kernels/attention_merge.cuh"

namespace tokend::cuda {
namespace {

// Query rows of one block, high and low parts each counting as one.
template <int kHeadDim>
constexpr int kPrefillRowTiles = kHeadDim > 128 ? 2 : 4;
template <int kHeadDim>
constexpr int kPrefillWarps = kHeadDim > 128 ? 4 : 8;

template <typename Tile>
struct PrefillBlock {
  const AttentionParams& params;
  unsigned char* shared;
  int stages;
  RowTile tile;
  SequenceEntry sequence;
  const LayerTable& table;  // stays in global memory: registers are short
  int kv_head;

  TOKEND_DEVICE int Group() const { return params.heads / params.kv.kv_heads; }
  TOKEND_DEVICE bool Pair() const { return params.out.lo != nullptr; }
  TOKEND_DEVICE int LowRows() const { return Pair() ? Tile::kRows / 2 : 0; }
  // Position of query row `row`.
  TOKEND_DEVICE int64_t PositionOf(int row) const {
    return sequence.position + tile.first + row / Group();
  }
  TOKEND_DEVICE bool Attends(int row) const {
    return row < tile.rows * Group() && PositionOf(row) >= table.attend_begin;
  }

  TOKEND_DEVICE void Prepare(bool sinks) const {
    const int group = Group();
    const int rows = tile.rows * group;
#pragma unroll 1
    for (int row = Warp(); row < Tile::kRows; row += Tile::kWarps) {
      if (row < rows) {
        PrepareQuery<Tile>(params, table, sequence.first_row + tile.first + row / group,
                           PositionOf(row), kv_head * group + row % group, row,
                           Pair() ? row + LowRows() : -1, sinks, shared);
      } else if (row < LowRows() || row >= LowRows() + rows) {
        ClearQuery<Tile>(row, sinks, shared);
      }
    }
  }

  TOKEND_DEVICE void SetViews(int piece) const {
    const auto row = static_cast<int>(threadIdx.x);
    if (row >= Tile::kRows) return;
    RowView view = {};
    if (Attends(row)) view = ViewOf(table, PositionOf(row), PositionOf(row), piece);
    reinterpret_cast<RowView*>(shared + Tile::kViews)[row] = view;
  }

  // total = total merged with the piece's `out`.
  TOKEND_DEVICE void Merge(const PieceWork<Tile>& work,
                           float (&total)[Tile::kRowTiles][Tile::kValueColumns][4]) const {
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) {
      if (work.Low(m)) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const MergeFactors factors =
            work.template At<MergeFactors>(Tile::kFactors)[m * 16 + half * 8 + Lane() / 4];
#pragma unroll
        for (int j = 0; j < Tile::kValueColumns; ++j) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            total[m][j][e] = Merged(factors, total[m][j][e], work.out[m][j][e]);
          }
        }
      }
    }
  }

  TOKEND_DEVICE void Store(const float (&total)[Tile::kRowTiles][Tile::kValueColumns][4]) const {
    const int group = Group();
    const auto* inverse = reinterpret_cast<const float*>(shared + Tile::kFactors);
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + half * 8 + Lane() / 4;
        if (row >= tile.rows * group) continue;
        const int64_t to = sequence.first_row + tile.first + row / group;
        const int head = (kv_head * group + row % group) * Tile::kHeadDim;
#pragma unroll
        for (int j = 0; j < Tile::kValueColumns; ++j) {
          const int dim = (j * Tile::kWarps + Warp()) * 8 + Lane() % 4 * 2;
          if (dim >= Tile::kHeadDim) continue;
          StoreHalf(params.out, to, head + dim, total[m][j][2 * half] * inverse[row],
                    params.saturations);
          StoreHalf(params.out, to, head + dim + 1, total[m][j][2 * half + 1] * inverse[row],
                    params.saturations);
        }
      }
    }
  }

  TOKEND_DEVICE void Attend() const {
    const auto own = static_cast<int>(threadIdx.x);
    float total[Tile::kRowTiles][Tile::kValueColumns][4] = {};
    RowTotal row_total;
    const int64_t last = PositionOf(tile.rows * Group() - 1);
    const int64_t start = PositionOf(0);
    const int64_t first = start > table.attend_begin ? start : table.attend_begin;
    const PieceList pieces = first > last ? PieceList{} : PiecesOf(table, first, last);
    const bool sinks = table.sink_tokens > SinkBegin(table, first) && last > table.sink_position;
    TileFeed<Tile> feed{params, table, shared, stages, kv_head, first, last, pieces};
    PieceWork<Tile> work{params, shared, stages, sinks, Pair()};
    if (pieces.count > 0) {
#pragma unroll 1
      for (int i = 0; i < stages - 1; ++i) feed.Issue();
      Prepare(sinks);
    }
#pragma unroll 1
    for (int i = 0; i < pieces.count; ++i) {
      const int piece = PieceAt(pieces, i);
      const RowView seen = ViewOf(table, first, last, piece);
      SetViews(piece);
      work.Score(seen, &feed);
      __syncthreads();
      if (own < Tile::kRows) {
        reinterpret_cast<MergeFactors*>(shared + Tile::kFactors)[own] =
            MergeInto(PublishMax<Tile>(shared), &row_total.largest);
      }
      __syncthreads();
      work.Weigh();
      work.AddValues(seen, &feed);
      Merge(work, total);
      __syncthreads();
      if (own < Tile::kRows - LowRows()) {
        const MergeFactors factors =
            reinterpret_cast<const MergeFactors*>(shared + Tile::kFactors)[own];
        row_total.sum = Merged(factors, row_total.sum, PieceSum<Tile>(shared, LowRows()));
      }
      __syncthreads();
    }
    if (own < Tile::kRows) {
      reinterpret_cast<float*>(shared + Tile::kFactors)[own] = Inverse(row_total.sum);
    }
    __syncthreads();
    Store(total);
  }
};

// Block: a tile's rows for one KV head.
template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads) PrefillAttentionKernel(AttentionLaunch launch) {
  const AttentionParams& params = launch.params;
  AllowNextKernel();
  WaitForPreviousKernel();
  unsigned char* shared = SharedArray<unsigned char>(0, Tile::SharedBytes(launch.stages));
  const int kv_heads = params.kv.kv_heads;
  const int index = static_cast<int>(blockIdx.x) / kv_heads;
  const StepTables& step = params.step;
  if (index >= step.counts->attention_tile_count) return;
  const RowTile tile =
      reinterpret_cast<const RowTile*>(step.words + step.counts->attention_tiles)[index];
  const PrefillBlock<Tile> block{params,
                                 shared,
                                 launch.stages,
                                 tile,
                                 step.sequences[tile.sequence],
                                 step.tables[int64_t{tile.sequence} * step.layers + params.layer],
                                 static_cast<int>(blockIdx.x) % kv_heads};
  block.Attend();
}

struct LaunchPrefill {
  const AttentionParams& params;
  unsigned blocks;
  bool dependent;
  cudaStream_t stream;

  template <int kHeadDim, bool kInt8>
  absl::Status Run() const {
    using Tile =
        AttentionTile<kHeadDim, kInt8, kPrefillWarps<kHeadDim>, kPrefillRowTiles<kHeadDim>>;
    static_assert(Tile::SharedBytes(kMinStages) <= 99 * 1024);
    LaunchDims dims;
    dims.grid_x = blocks;
    dims.threads = Tile::kThreads;
    dims.shared_bytes = Tile::SharedBytes(kMinStages);
    dims.dependent = dependent;
    return Launch("PrefillAttention", PrefillAttentionKernel<Tile>, dims,
                  AttentionLaunch{params, kMinStages}, stream);
  }
};

}  // namespace

int AttentionTileTokens(const KvLayout& kv, int heads, bool pair) {
  const int rows = kv.head_dim > 128 ? kPrefillRowTiles<256> * 16 : kPrefillRowTiles<128> * 16;
  return (pair ? rows / 2 : rows) / (heads / kv.kv_heads);
}

absl::Status PrefillAttention(const AttentionParams& params, const DeviceInfo& device, int tiles,
                              cudaStream_t stream) {
  if (tiles == 0) return absl::OkStatus();
  const auto blocks = static_cast<unsigned>(tiles * params.kv.kv_heads);
  return DispatchAttention(params, LaunchPrefill{params, blocks, device.dependent_launch, stream});
}

}  // namespace tokend::cuda
