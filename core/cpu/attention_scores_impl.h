// Scores of queries over a piece, for attention_kernels_impl.h; see simd.h for what
// may stand here.
#ifndef TOKEND_CORE_CPU_ATTENTION_SCORES_IMPL_H_
#define TOKEND_CORE_CPU_ATTENTION_SCORES_IMPL_H_

#include "core/cpu/attention_kernels.h"
#include "core/cpu/simd.h"

namespace tokend::cpu::TOKEND_SIMD_NAMESPACE {
namespace {

// Register tiles: scores of kTileRows queries x kStripsAtOnce strips, outputs of
// kTileRows queries x kValueVecs x 16 dimensions.
#if defined(TOKEND_SIMD_AVX512)
constexpr int kTileRows = 6, kStripsAtOnce = 4, kValueVecs = 4;
#elif defined(TOKEND_SIMD_NEON)
constexpr int kTileRows = 4, kStripsAtOnce = 1, kValueVecs = 1;
#else
constexpr int kTileRows = 3, kStripsAtOnce = 2, kValueVecs = 2;
#endif

// So few queries read the pages themselves; for more, a piece is widened to f32
// once.
constexpr int kDirectQueries = 8;

constexpr float kMinusInf = -__builtin_inff();

// A piece as the inner loops read it: pages (T f32, f16 or int8) or scratch.
template <typename T>
struct Strips {
  const T* keys[kPieceStrips];
  const T* values[kPieceStrips];
  int64_t key_stride;
  int64_t value_stride;
};

// Relative positions [sink_begin, sink_end) and [begin, end) that a query or some see,
// and the strips of `kept`.
struct Range {
  int64_t sink_begin, sink_end, begin, end;
  uint32_t kept;
  bool empty() const { return sink_begin >= sink_end && begin >= end && kept == 0; }
  bool IsKept(int strip) const { return (kept >> strip & 1) != 0; }
  bool HasSinks(int64_t from) const {
    return sink_begin < sink_end && from < sink_end && from + kStripTokens > sink_begin;
  }
  Mask SinkLanes(int64_t from) const { return LaneRange(sink_begin - from, sink_end - from); }
  bool Touches(int strip) const {
    const int64_t from = int64_t{strip} * kStripTokens;
    return HasSinks(from) || IsKept(strip) ||
           (begin < end && from < end && from + kStripTokens > begin);
  }
};

// Of queries at positions [first, last].
Range Seen(const PieceView& piece, const QueryTile& tile, int64_t first, int64_t last) {
  Range range;
  range.sink_end = Most(0, Least(piece.sink_end, last + 1));
  range.sink_begin = tile.sink_reach == 0 ? 0 : Most(0, first - tile.sink_reach + 1);
  range.end = Least(kPieceTokens, last + 1);
  const int64_t begin = tile.window == 0 ? 0 : first - tile.window + 1;
  range.begin = Most(Most(begin, piece.begin), range.sink_end);
  range.kept = piece.kept;
  return range;
}

template <typename T, int R, int S>
void ScoreTile(const float* query, int head_dim, const T* const* keys, int64_t stride,
               float* scores) {
  Vec sums[R][S];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) sums[r][s] = Zero();
  }
  for (int d = 0; d < head_dim; ++d) {
    Vec key[S];
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) key[s] = Load(keys[s] + d * stride);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec q = Set1(query[r * head_dim + d]);
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) sums[r][s] = Fma(q, key[s], sums[r][s]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) Store(scores + r * kPieceTokens + s * kLanes, sums[r][s]);
  }
}

// Raw scores of R queries for the strips that `wanted` touches.
template <typename T, int R>
void ScoreRows(const float* query, int head_dim, const Strips<T>& strips, const Range& wanted,
               float* scores) {
  for (int s = 0; s < kPieceStrips;) {
    int count = 0;
    while (s + count < kPieceStrips && count < kStripsAtOnce && wanted.Touches(s + count)) ++count;
    if (count == kStripsAtOnce) {
      ScoreTile<T, R, kStripsAtOnce>(query, head_dim, strips.keys + s, strips.key_stride,
                                     scores + s * kLanes);
    } else {
      for (int i = s; i < s + count; ++i) {
        ScoreTile<T, R, 1>(query, head_dim, strips.keys + i, strips.key_stride,
                           scores + i * kLanes);
      }
    }
    s += count > 0 ? count : 1;
  }
}

template <typename T>
void ScoreQueries(int rows, const float* query, int head_dim, const Strips<T>& strips,
                  const Range& wanted, float* scores) {
#define TOKEND_CASE(R)                                                 \
  case R:                                                              \
    if constexpr (R <= kTileRows) {                                    \
      return ScoreRows<T, R>(query, head_dim, strips, wanted, scores); \
    }                                                                  \
    break;
  switch (rows) {
    TOKEND_CASE(1)
    TOKEND_CASE(2)
    TOKEND_CASE(3)
    TOKEND_CASE(4)
    TOKEND_CASE(5)
    TOKEND_CASE(6)
  }
#undef TOKEND_CASE
}

// Makes the raw scores of one query final, -Inf for what it does not see, over the
// strips that `block` touches. The largest.
Vec MaskScores(const AttentionScratch& scratch, bool scaled, bool sink_query, float soft_cap,
               const Range& own, const Range& block, float* scores, const float* sink_scores) {
  Vec largest = Set1(kMinusInf);
  for (int s = 0; s < kPieceStrips; ++s) {
    if (!block.Touches(s)) continue;
    const int64_t at = int64_t{s} * kLanes;
    Vec v = Load(scores + at);
    const bool sinks_here = own.HasSinks(at);
    if (sinks_here && sink_query) v = Blend(Load(sink_scores + at), v, own.SinkLanes(at));
    if (scaled) v = Mul(v, Load(scratch.scales + at));
    if (soft_cap != 0) v = Mul(Tanh(Mul(v, Set1(1 / soft_cap))), Set1(soft_cap));
    if (!own.IsKept(s) && (own.begin > at || own.end < at + kLanes)) {
      const Vec hidden = Set1(kMinusInf);
      const Vec window = Blend(v, hidden, LaneRange(own.begin - at, own.end - at));
      v = sinks_here ? Blend(v, window, own.SinkLanes(at)) : window;
    }
    largest = Max(largest, v);
    Store(scores + at, v);
  }
  return largest;
}

}  // namespace
}  // namespace tokend::cpu::TOKEND_SIMD_NAMESPACE

#endif  // TOKEND_CORE_CPU_ATTENTION_SCORES_IMPL_H_
