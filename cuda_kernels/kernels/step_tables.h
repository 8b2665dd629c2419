// A step as the kernels see it. The host writes it into one block of memory (see
// backend/step_tables.h) whose fixed part lies at the same offsets in every step of one
// plan, so that a graph that was captured once reads each new step.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_STEP_TABLES_H_
#define TOKEND_CUDA_KERNELS_KERNELS_STEP_TABLES_H_

#include <cstdint>

namespace tokend::cuda {

// Positions that attention reduces at once, cut from position 0.
inline constexpr int kPieceTokens = 256;

// ops::StepSequence.
struct SequenceEntry {
  int32_t first_row = 0;
  int32_t rows = 0;
  int64_t position = 0;  // of the first row
};

// ops::LayerKv. Masks are those of ops::AttentionMask.
struct alignas(16) LayerTable {
  int64_t window_tokens = 0;
  int64_t sink_tokens = 0;  // 0 where there is no window
  int64_t sink_reach = 0;
  int64_t first_page = 0;
  int64_t attend_begin = 0;
  // Rows from here on leave KV: the later of this layer's store_begin and the
  // attend_begin of the layer below.
  int64_t store_begin = 0;
  int32_t pages = 0;  // where the page ids start in StepTables::words
  int32_t page_count = 0;
  int32_t sink_pages = 0;
  // Row of the angle table from which rows behind sink_position see the sinks;
  // others see them from where they stand.
  int32_t sink_angles = 0;
  int64_t sink_position = 0;  // sink_tokens + window_tokens - 1
};

// One piece of one sequence of a single row.
struct alignas(16) DecodeItem {
  int32_t sequence = 0;
  int32_t piece = 0;  // positions from piece * kPieceTokens on; -1: the row only leaves KV
  int32_t first = 0;  // index of the sequence's first item
  int32_t count = 0;  // of the sequence's items, which see something, in index order
};

// Some rows of a sequence that has no decode items.
struct RowTile {
  int32_t sequence = 0;
  int32_t first = 0;  // counted from the sequence's first row
  int32_t rows = 0;
  int32_t unused = 0;
};

// Lists in StepTables::words; indices count words and are multiples of 4.
struct LayerLists {
  int32_t decode_items = 0;
  int32_t decode_count = 0;
};

struct StepCounts {
  int32_t rows = 0;
  int32_t sequences = 0;
  int32_t angle_rows = 0;
  int32_t logit_rows = 0;
  int32_t attention_tiles = 0;  // RowTiles, index in words
  int32_t attention_tile_count = 0;
  int32_t append_tiles = 0;  // RowTiles within one page each
  int32_t append_tile_count = 0;
};

// All on the device. A view, by value in kernels' parameters.
struct StepTables {
  const StepCounts* counts = nullptr;
  const int32_t* tokens = nullptr;           // [rows]
  const int32_t* logit_rows = nullptr;       // [logit_rows], ascending
  const int64_t* angle_positions = nullptr;  // [angle_rows]: the rows' own, then sinks'
  const SequenceEntry* sequences = nullptr;  // [sequences]
  const LayerTable* tables = nullptr;        // [sequences][layers]
  const LayerLists* lists = nullptr;         // [layers]
  const int32_t* words = nullptr;            // lists and page ids
  int layers = 0;
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_STEP_TABLES_H_
