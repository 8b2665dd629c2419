// The stream of key and value tiles into a block's shared memory.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_FEED_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_FEED_CUH_

#include "cuda_kernels/device/cp_async.cuh"
#include "cuda_kernels/kernels/attention.h"
#include "cuda_kernels/kernels/attention_head.cuh"
#include "cuda_kernels/kernels/attention_tile.cuh"

namespace tokend::cuda {

// WaitForCopies<pending>, pending < kMaxStages - 1.
TOKEND_DEVICE void WaitForAllBut(int pending) {
  switch (pending) {
    case 0:
      return WaitForCopies<0>();
    case 1:
      return WaitForCopies<1>();
    case 2:
      return WaitForCopies<2>();
    case 3:
      return WaitForCopies<3>();
    case 4:
      return WaitForCopies<4>();
    case 5:
      return WaitForCopies<5>();
    default:
      return WaitForCopies<6>();
  }
}

// Copies, piece after piece, the tiles of keys and then of values that some row of the
// block's tile sees. Every thread holds one and calls the same functions; all but
// `page` is the same in all of them.
template <typename Tile>
struct TileFeed {
  const AttentionParams& params;
  const LayerTable& table;
  unsigned char* shared;
  int stages;  // of the ring
  int kv_head;
  int64_t first, last;  // positions of the tile's rows
  PieceList pieces;

  int next_piece = 0;  // into `pieces`
  int stage = 0;
  unsigned keys_left = 0;    // tiles of the piece
  unsigned values_left = 0;  // the same
  RowView view = {};
  int32_t page = -1;  // lane l: the page of positions l * page_tokens of the piece on

  // The next tile, or nothing behind the last one; either closes a group of copies.
  TOKEND_DEVICE void Issue() {
    if ((keys_left | values_left) == 0 && next_piece < pieces.count) EnterPiece();
    if (keys_left != 0) {
      CopyKeys(__ffs(static_cast<int>(keys_left)) - 1);
      keys_left &= keys_left - 1;
    } else if (values_left != 0) {
      CopyValues(__ffs(static_cast<int>(values_left)) - 1);
      values_left &= values_left - 1;
    }
    CommitCopies();
    stage = stage + 1 == stages ? 0 : stage + 1;
  }

 private:
  TOKEND_DEVICE void EnterPiece() {
    const int piece = PieceAt(pieces, next_piece++);
    view = ViewOf(table, first, last, piece);
    keys_left = values_left = CellsOf(view, Tile::kTileTokens);
    const int pages = kPieceTokens >> params.kv.page_shift();
    page = Lane() < pages ? FindPage(params.step, table, int64_t{piece} * pages + Lane()) : -1;
  }

  // The page of a position of the piece, for each lane its own.
  TOKEND_DEVICE const unsigned char* PageAt(int position) const {
    const int32_t id = __shfl_sync(kAllLanes, page, position >> params.kv.page_shift());
    return id < 0 ? nullptr : params.arena + id * params.kv.page_bytes();
  }

  TOKEND_DEVICE unsigned char* Stage() const {
    return shared + Tile::kRing + stage * Tile::kStageBytes;
  }

  TOKEND_DEVICE void CopyKeys(int tile) {
    constexpr int kRowChunks = Tile::kHeadDim * Tile::kElementBytes / 16;
    static_assert(Tile::kTileTokens * kRowChunks % kWarpLanes == 0);
    const KvLayout& kv = params.kv;
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < Tile::kTileTokens * kRowChunks;
         i += Tile::kThreads) {
      const int row = i / kRowChunks;
      const int chunk = i % kRowChunks;
      const int position = tile * Tile::kTileTokens + row;
      const unsigned char* from = PageAt(position);
      const bool valid = from != nullptr && Sees(view, position);
      if (valid) {
        const int token = position & (kv.page_tokens - 1);
        from += kv.key_offset(kv_head) + token * Tile::kHeadDim * Tile::kElementBytes + chunk * 16;
      }
      const int to = Tile::kInt8 ? UnitAt<Tile::kHeadDim / 16, 8>(row, chunk) * 16
                                 : HalfUnit<Tile::kHeadDim>(row, chunk / 2) + chunk % 2 * 16;
      CopyAsync16(Stage() + to, valid ? from : params.arena, valid);
    }
    if (Tile::kInt8) CopyScales(tile, kv.key_scale_offset(kv_head));
  }

  TOKEND_DEVICE void CopyValues(int tile) {
    constexpr int kStripChunks = Tile::kElementBytes;  // of one dimension
    constexpr int kChunkTokens = kStripTokens / kStripChunks;
    constexpr int kChunks = Tile::kTileStrips * Tile::kHeadDim * kStripChunks;
    static_assert(kChunks % kWarpLanes == 0);
    const KvLayout& kv = params.kv;
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < kChunks; i += Tile::kThreads) {
      const int strip = i / (Tile::kHeadDim * kStripChunks);
      const int dim = i / kStripChunks % Tile::kHeadDim;
      const int chunk = i % kStripChunks;
      const int position = tile * Tile::kTileTokens + strip * kStripTokens + chunk * kChunkTokens;
      const unsigned char* from = PageAt(position);
      const bool valid = from != nullptr && SeesAny(position, kChunkTokens);
      if (valid) {
        const int token = position & (kv.page_tokens - 1);
        from += kv.value_offset(kv_head) + (dim * kv.page_tokens + token) * Tile::kElementBytes;
      }
      const int to = Tile::kInt8 ? UnitAt<Tile::kTileStrips, 8>(dim, strip) * 16
                                 : UnitAt<Tile::kTileStrips, 4>(dim, strip) * 32 + chunk * 16;
      CopyAsync16(Stage() + to, valid ? from : params.arena, valid);
    }
    if (Tile::kInt8) CopyScales(tile, kv.value_scale_offset(kv_head));
  }

  // [kTileTokens] f16 behind the codes.
  TOKEND_DEVICE void CopyScales(int tile, int64_t offset) {
    constexpr int kChunks = Tile::kTileTokens / 8;
    if (Warp() != 0) return;
    const int chunk = Lane() % kChunks;
    const int position = tile * Tile::kTileTokens + chunk * 8;
    const unsigned char* from = PageAt(position);
    const bool valid = from != nullptr && SeesAny(position, 8);
    if (valid) from += offset + (position & (params.kv.page_tokens - 1)) * 2;
    if (Lane() >= kChunks) return;
    CopyAsync16(Stage() + Tile::kTileBytes + chunk * 16, valid ? from : params.arena, valid);
  }

  TOKEND_DEVICE bool SeesAny(int at, int count) const {
    return (at < view.end && at + count > view.begin && view.begin < view.end) ||
           (at < view.sink_end && at + count > view.sink_begin && view.sink_begin < view.sink_end);
  }
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_FEED_CUH_
