// Attention of some query rows over one piece of one KV head, built once per
// instruction set; all give the same bits.
//
// A piece is kPieceTokens consecutive positions, cut from position 0. Its result
// for a query is (max, sum, out) over the rows of the piece that the query sees:
//   s_j  = sum over d of query[d] key_j[d], fused, d ascending; int8: times scale_j;
//          then capped
//   max  = largest s_j;  p_j = 2^(s_j - max)
//   sum  = the p_j by lane j % 16, j ascending, then the lanes pairwise
//   out  = sum over j of p_j value_j, fused, j ascending; int8: p_j times scale_j first
// Pieces are merged in index order. None of it depends on how many queries or
// pieces are worked on together.
#ifndef TOKEND_CORE_CPU_ATTENTION_KERNELS_H_
#define TOKEND_CORE_CPU_ATTENTION_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/cpu/cpu_features.h"

namespace tokend::cpu {

inline constexpr int kPieceTokens = 256;
inline constexpr int kStripTokens = 16;  // positions that lie side by side in any page
inline constexpr int kPieceStrips = kPieceTokens / kStripTokens;

// Positions of a piece, relative to its start, that some query sees: [sink_begin,
// sink_end) and [begin, end), sink_end <= begin; and the strips between of which all
// queries see all, bits of `kept`. Strips that hold none have null pointers.
struct PieceView {
  base::KvDtype dtype;
  int head_dim;
  int64_t key_stride;                          // elements from one dimension to the next
  const void* keys[kPieceStrips];              // [head_dim][key_stride], 16 positions wide
  const void* values[kPieceStrips];            // [16][head_dim]
  const uint16_t* key_scales[kPieceStrips];    // [16] f16, int8 only
  const uint16_t* value_scales[kPieceStrips];  // [16] f16, int8 only
  int sink_begin;
  int sink_end;
  int begin;
  int end;
  uint32_t kept;
};

// The queries: `rows` consecutive positions times `group` heads that share the KV
// head. Query q stands at position first_position + q / group. All positions are
// relative to the piece's start and may be negative or beyond its end.
struct QueryTile {
  int rows;
  int group;
  int64_t first_position;
  int64_t window;           // positions seen, itself included; 0: all
  int64_t sink_reach;       // likewise where sinks are; 0: all
  const float* query;       // [rows * group, head_dim], times scale * log2(e)
  const float* sink_query;  // likewise, for positions below sink_end; nullptr: same as query
  float soft_cap;           // on scores, see ops/soft_cap.h, times log2(e); 0: none
};

// What one worker computes in. Strides: scores [kPieceTokens], out [dim_stride].
struct AttentionScratch {
  int64_t dim_stride;  // head_dim rounded up to 16
  float* keys;         // [kPieceStrips][head_dim][16]
  float* values;       // [kPieceTokens][dim_stride]
  float* scales;       // [2][kPieceTokens], keys and values
  float* scores;       // [queries][kPieceTokens]
  float* sink_scores;  // [queries][kPieceTokens]
};

// (max, sum, out) of some queries. max is -Inf where nothing was seen.
struct AttentionState {
  float* max;  // [queries]
  float* sum;  // [queries]
  float* out;  // [queries][dim_stride]
};

struct AttentionKernels {
  void (*attend_piece)(const PieceView& piece, const QueryTile& tile,
                       const AttentionScratch& scratch, const AttentionState& result);
  // Adds to weights[s], over the queries: the sum over strip s of round(2^20 times
  // the final probability), given the final max and sum in `total`.
  void (*weigh_piece)(const PieceView& piece, const QueryTile& tile,
                      const AttentionScratch& scratch, const AttentionState& total,
                      int64_t* weights);
  // state := state merged with a later piece.
  void (*merge)(const AttentionState& piece, int queries, int64_t dim_stride,
                const AttentionState& state);
  // to[head_dim] = out / sum of query q.
  void (*finish)(const AttentionState& state, int q, int64_t dim_stride, int head_dim, float* to);
};

const AttentionKernels& GetAttentionKernels(Isa isa);

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_ATTENTION_KERNELS_H_
