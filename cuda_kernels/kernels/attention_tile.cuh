// How a block of an attention kernel lays out its shared memory.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_TILE_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_TILE_CUH_

#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/kernels/step_tables.h"

namespace tokend::cuda {

inline constexpr int kStripTokens = 16;  // positions that lie side by side in any page
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kMinStages = 2;  // of a ring of tiles
inline constexpr int kMaxStages = 8;
inline constexpr int kMaxGroup = 16;  // query heads of a KV head

// Rows of shared memory are cut into units that one row of a fragment reads at once:
// 32 bytes of f16, 16 bytes of int8 (16 elements each). kWays rows that are read
// together must lie in different banks: unit u of row r goes to UnitAt(r, u).
template <int kUnits, int kWays>
TOKEND_DEVICE int UnitAt(int row, int unit) {
  constexpr int kLowBit = kUnits & -kUnits;
  constexpr int kTurn = kLowBit < kWays ? kLowBit : kWays;
  return row * kUnits + (unit ^ (row / (kWays / kTurn) & (kTurn - 1)));
}

// Byte offset of 16 elements of f16 in a row of kElements.
template <int kElements>
TOKEND_DEVICE int HalfUnit(int row, int unit) {
  return UnitAt<kElements / 16, 4>(row, unit) * 32;
}

// A block of kWarps warps for kRows query rows (a row is a token's head). Keys and
// values of a piece go through a ring of tiles of kTileTokens positions: first the tiles
// of keys, then those of values.
//
// Mode f32: the high parts of queries and probabilities are the first half of the rows,
// and the low parts the second half.
template <int kHeadDimArg, bool kInt8Arg, int kWarpsArg, int kRowTilesArg>
struct AttentionTile {
  static constexpr int kHeadDim = kHeadDimArg;
  static constexpr bool kInt8 = kInt8Arg;
  static constexpr int kWarps = kWarpsArg;
  static constexpr int kRowTiles = kRowTilesArg;

  static constexpr int kThreads = kWarps * kWarpLanes;
  static constexpr int kRows = kRowTiles * 16;
  static constexpr int kTileTokens = kHeadDim > 128 ? 32 : 64;
  static constexpr int kTiles = kPieceTokens / kTileTokens;
  static constexpr int kTileStrips = kTileTokens / kStripTokens;
  // Key columns of 8, and value columns of 8, of one warp.
  static constexpr int kKeyColumns = kTileTokens / 8 / kWarps;
  static constexpr int kValueColumns = (kHeadDim / 8 + kWarps - 1) / kWarps;
  static constexpr int kElementBytes = kInt8 ? 1 : 2;
  static constexpr int kTileBytes = kTileTokens * kHeadDim * kElementBytes;
  static constexpr int kSumBlocks = 8;  // of 32 positions each, whose sums are added in order

  // Bytes of each stage of the ring: codes, then scales [kTileTokens] f16.
  static constexpr int kStageBytes = kTileBytes + (kInt8 ? kTileTokens * 2 : 0);
  static constexpr int kQueryBytes = kRows * kHeadDim * 2;
  static constexpr int kWeightBytes = kRows * kPieceTokens * 2;

  static constexpr int kQuery = 0;                           // [kRows][kHeadDim] f16
  static constexpr int kSinkQuery = kQuery + kQueryBytes;    // the same
  static constexpr int kWeights = kSinkQuery + kQueryBytes;  // [kRows][kPieceTokens] f16
  // [kSumBlocks][kRows] f32; before there are sums, [kRows] RowView.
  static constexpr int kSums = kWeights + kWeightBytes;
  static constexpr int kViews = kSums;
  static constexpr int kFactors = kSums + kSumBlocks * kRows * 4;  // [kRows] MergeFactors
  static constexpr int kRowMax = kFactors + kRows * 8;             // [kRows] f32
  static constexpr int kRing = kRowMax + kRows * 4;                // the stages
  static constexpr int SharedBytes(int stages) { return kRing + stages * kStageBytes; }
  // In the room of the weights: [kWarps][kHeadDim] f32 while queries are prepared, and
  // [kWarps][kRows] f32 until there are weights.
  static constexpr int kScratch = kWeights;
  static constexpr int kWarpMax = kWeights;

  static_assert(kKeyColumns * 8 * kWarps == kTileTokens);
  static_assert(kWarps * kHeadDim * 4 <= kWeightBytes && kSumBlocks * 4 >= 16);
  static_assert(kSumBlocks % kWarps == 0);
  static_assert(kStageBytes % 16 == 0 && kRing % 16 == 0);
};

// The positions of a piece, counted from its start, that a row sees, or that some row
// of a tile sees: [begin, end) and the sinks [sink_begin, sink_end).
struct alignas(16) RowView {
  int begin, end;
  int sink_begin, sink_end;
};

TOKEND_DEVICE bool Sees(const RowView& view, int at) {
  return (at >= view.begin && at < view.end) || (at >= view.sink_begin && at < view.sink_end);
}

TOKEND_DEVICE int InPiece(int64_t position, int64_t start) {
  const int64_t at = position - start;
  return static_cast<int>(at < 0 ? 0 : at > kPieceTokens ? kPieceTokens : at);
}

TOKEND_DEVICE int64_t WindowBegin(const LayerTable& table, int64_t p) {
  return table.window_tokens == 0 || p < table.window_tokens ? 0 : p - table.window_tokens + 1;
}

TOKEND_DEVICE int64_t SinkBegin(const LayerTable& table, int64_t p) {
  return table.sink_reach == 0 || p < table.sink_reach ? 0 : p - table.sink_reach + 1;
}

// What rows at `first` to `last` see of a piece together.
TOKEND_DEVICE RowView ViewOf(const LayerTable& table, int64_t first, int64_t last, int piece) {
  const int64_t start = int64_t{piece} * kPieceTokens;
  const int64_t sinks = table.sink_tokens < last + 1 ? table.sink_tokens : last + 1;
  RowView view;
  view.sink_begin = InPiece(SinkBegin(table, first), start);
  view.sink_end = InPiece(sinks, start);
  view.begin = InPiece(WindowBegin(table, first), start);
  view.end = InPiece(last + 1, start);
  return view;
}

// Bits of the cells of `size` positions that [begin, end) touches.
TOKEND_DEVICE unsigned CellsOf(int begin, int end, int size) {
  if (begin >= end) return 0;
  return (2u << ((end - 1) / size)) - (1u << (begin / size));
}

TOKEND_DEVICE unsigned CellsOf(const RowView& view, int size) {
  return CellsOf(view.begin, view.end, size) | CellsOf(view.sink_begin, view.sink_end, size);
}

// Pieces that some row of a tile sees, in index order: sinks', then the window's.
struct PieceList {
  int sink_first = 0;
  int sinks = 0;
  int first = 0;
  int count = 0;  // of all
};

TOKEND_DEVICE int PieceAt(const PieceList& pieces, int i) {
  return i < pieces.sinks ? pieces.sink_first + i : pieces.first + i - pieces.sinks;
}

TOKEND_DEVICE PieceList PiecesOf(const LayerTable& table, int64_t first, int64_t last) {
  PieceList pieces;
  pieces.first = static_cast<int>(WindowBegin(table, first) / kPieceTokens);
  const int64_t begin = SinkBegin(table, first);
  if (begin < table.sink_tokens) {
    const auto end = static_cast<int>((table.sink_tokens - 1) / kPieceTokens) + 1;
    pieces.sink_first = static_cast<int>(begin / kPieceTokens);
    pieces.sinks = (end < pieces.first ? end : pieces.first) - pieces.sink_first;
    if (pieces.sinks < 0) pieces.sinks = 0;
  }
  pieces.count = pieces.sinks + static_cast<int>(last / kPieceTokens) - pieces.first + 1;
  return pieces;
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_TILE_CUH_
