// The bodies behind AttentionKernels; see simd.h for what may stand here.
#ifndef TOKEND_CORE_CPU_ATTENTION_KERNELS_IMPL_H_
#define TOKEND_CORE_CPU_ATTENTION_KERNELS_IMPL_H_

#include "core/cpu/attention_scores_impl.h"
#include "core/cpu/simd.h"

namespace tokend::cpu::TOKEND_SIMD_NAMESPACE {
namespace {

// Turns the raw scores of one query into p_j (times the value's scale, if any), 0
// for what it does not see, over the strips that `block` touches.
void Softmax(const AttentionScratch& scratch, bool scaled, bool sink_query, float soft_cap,
             const Range& own, const Range& block, float* scores, const float* sink_scores,
             float* max, float* sum) {
  *max =
      MaxLanes(MaskScores(scratch, scaled, sink_query, soft_cap, own, block, scores, sink_scores));
  const Vec top = Set1(own.empty() ? 0.0f : *max);
  Vec total = Zero();
  for (int s = 0; s < kPieceStrips; ++s) {
    if (!block.Touches(s)) continue;
    const int64_t at = int64_t{s} * kLanes;
    Vec p = Exp2(Sub(Load(scores + at), top));
    total = Add(total, p);
    if (scaled) p = Mul(p, Load(scratch.scales + kPieceTokens + at));
    Store(scores + at, p);
  }
  *sum = SumLanes(total);
}

template <typename T, int R, int V>
void ValueTile(const float* p, const Strips<T>& strips, const Range& range, int64_t d,
               int64_t dim_stride, float* out) {
  Vec sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v] = Zero();
  }
  int64_t bounds[2 + kPieceStrips][2] = {{range.sink_begin, range.sink_end}};
  int count = 1;
  for (int s = 0; range.kept != 0 && s < kPieceStrips; ++s) {
    if (!range.IsKept(s)) continue;
    bounds[count][0] = int64_t{s} * kStripTokens;
    bounds[count++][1] = int64_t{s + 1} * kStripTokens;
  }
  bounds[count][0] = range.begin;
  bounds[count++][1] = range.end;
  for (int i = 0; i < count; ++i) {
    const int64_t end = bounds[i][1];
    for (int64_t j = bounds[i][0]; j < end;) {
      const int64_t strip = j / kStripTokens;
      const int64_t stop = Least(end, (strip + 1) * kStripTokens);
      const T* row = strips.values[strip] + j % kStripTokens * strips.value_stride + d;
      for (; j < stop; ++j, row += strips.value_stride) {
        Vec value[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) value[v] = Load(row + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const Vec weight = Set1(p[r * kPieceTokens + j]);
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v) sums[r][v] = Fma(weight, value[v], sums[r][v]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) Store(out + r * dim_stride + d + v * kLanes, sums[r][v]);
  }
}

template <typename T, int R>
void ValueRows(const float* p, const Strips<T>& strips, const Range& range, int64_t dim_stride,
               float* out) {
  int64_t d = 0;
  for (; d + kValueVecs * kLanes <= dim_stride; d += kValueVecs * kLanes) {
    ValueTile<T, R, kValueVecs>(p, strips, range, d, dim_stride, out);
  }
  for (; d < dim_stride; d += kLanes) ValueTile<T, R, 1>(p, strips, range, d, dim_stride, out);
}

template <typename T>
void ValueQueries(int rows, const float* p, const Strips<T>& strips, const Range& range,
                  int64_t dim_stride, float* out) {
#define TOKEND_CASE(R)                                           \
  case R:                                                        \
    if constexpr (R <= kTileRows) {                              \
      return ValueRows<T, R>(p, strips, range, dim_stride, out); \
    }                                                            \
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

template <typename T>
void AttendStrips(const PieceView& piece, const QueryTile& tile, const Strips<T>& strips,
                  const AttentionScratch& scratch, const AttentionState& result) {
  const int queries = tile.rows * tile.group;
  const bool scaled = piece.dtype == base::KvDtype::kInt8;
  const int dim = piece.head_dim;
  auto position = [&](int q) { return tile.first_position + q / tile.group; };
  for (int q = 0; q < queries; q += kTileRows) {
    const int count = static_cast<int>(Least(kTileRows, queries - q));
    const Range block = Seen(piece, tile, position(q), position(q + count - 1));
    float* scores = scratch.scores + q * kPieceTokens;
    float* sink_scores = scratch.sink_scores + q * kPieceTokens;
    ScoreQueries(count, tile.query + q * dim, dim, strips, block, scores);
    const bool sink_query = tile.sink_query != nullptr && block.sink_begin < block.sink_end;
    if (sink_query) {
      const Range sinks = {block.sink_begin, block.sink_end, 0, 0, 0};
      ScoreQueries(count, tile.sink_query + q * dim, dim, strips, sinks, sink_scores);
    }
    for (int i = 0; i < count; ++i) {
      const Range own = Seen(piece, tile, position(q + i), position(q + i));
      Softmax(scratch, scaled, sink_query, tile.soft_cap, own, block, scores + i * kPieceTokens,
              sink_scores + i * kPieceTokens, result.max + q + i, result.sum + q + i);
    }
    ValueQueries(count, scores, strips, block, scratch.dim_stride,
                 result.out + q * scratch.dim_stride);
  }
}

template <typename T>
void WeighStrips(const PieceView& piece, const QueryTile& tile, const Strips<T>& strips,
                 const AttentionScratch& scratch, const AttentionState& total, int64_t* weights) {
  const int queries = tile.rows * tile.group;
  const bool scaled = piece.dtype == base::KvDtype::kInt8;
  for (int q = 0; q < queries; ++q) {
    const int64_t position = tile.first_position + q / tile.group;
    const Range own = Seen(piece, tile, position, position);
    float* scores = scratch.scores;
    ScoreQueries(1, tile.query + q * piece.head_dim, piece.head_dim, strips, own, scores);
    MaskScores(scratch, scaled, false, tile.soft_cap, own, own, scores, nullptr);
    const Vec top = Set1(total.max[q]);
    const Vec factor = Set1(1048576.0f / total.sum[q]);
    for (int s = 0; s < kPieceStrips; ++s) {
      if (!own.Touches(s)) continue;
      // Whole numbers whose sum is at most 2^24: exact.
      const Vec p = Exp2(Sub(Load(scores + int64_t{s} * kLanes), top));
      weights[s] += static_cast<int64_t>(SumLanes(Round(Mul(p, factor))));
    }
  }
}

// Sixteen or fewer elements at the end of a row.
template <typename T>
Vec LoadEnd(const T* from, int64_t n) {
  if (n >= kLanes) return Load(from);
  T lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = from[i];
  return Load(lanes);
}

// Copies the piece to scratch, as f32; only rows that some query sees.
template <typename T>
Strips<float> Widen(const PieceView& piece, const AttentionScratch& scratch) {
  Strips<float> wide;
  wide.key_stride = kLanes;
  wide.value_stride = scratch.dim_stride;
  const int dim = piece.head_dim;
  for (int s = 0; s < kPieceStrips; ++s) {
    float* keys = scratch.keys + int64_t{s} * dim * kLanes;
    wide.keys[s] = keys;
    wide.values[s] = scratch.values + s * kStripTokens * scratch.dim_stride;
    if (piece.keys[s] == nullptr) continue;
    const T* from = static_cast<const T*>(piece.keys[s]);
    for (int d = 0; d < dim; ++d) Store(keys + d * kLanes, Load(from + d * piece.key_stride));
  }
  auto widen = [&](int begin, int end) {
    for (int j = begin; j < end; ++j) {
      const T* from =
          static_cast<const T*>(piece.values[j / kStripTokens]) + int64_t{j % kStripTokens} * dim;
      float* to = scratch.values + j * scratch.dim_stride;
      for (int d = 0; d < dim; d += kLanes) Store(to + d, LoadEnd(from + d, dim - d));
    }
  };
  widen(piece.sink_begin, piece.sink_end);
  for (int s = 0; s < kPieceStrips; ++s) {
    if ((piece.kept >> s & 1) != 0) widen(s * kStripTokens, (s + 1) * kStripTokens);
  }
  widen(piece.begin, piece.end);
  return wide;
}

void WidenScales(const PieceView& piece, float* scales) {
  for (int s = 0; s < kPieceStrips; ++s) {
    if (piece.key_scales[s] == nullptr) continue;
    Store(scales + s * kLanes, Load(piece.key_scales[s]));
    Store(scales + kPieceTokens + s * kLanes, Load(piece.value_scales[s]));
  }
}

template <typename T>
Strips<T> Direct(const PieceView& piece) {
  Strips<T> strips;
  strips.key_stride = piece.key_stride;
  strips.value_stride = piece.head_dim;
  for (int s = 0; s < kPieceStrips; ++s) {
    strips.keys[s] = static_cast<const T*>(piece.keys[s]);
    strips.values[s] = static_cast<const T*>(piece.values[s]);
  }
  return strips;
}

template <typename T>
void AttendTyped(const PieceView& piece, const QueryTile& tile, const AttentionScratch& scratch,
                 const AttentionState& result) {
  if (tile.rows * tile.group > kDirectQueries || piece.head_dim % kLanes != 0) {
    return AttendStrips(piece, tile, Widen<T>(piece, scratch), scratch, result);
  }
  AttendStrips(piece, tile, Direct<T>(piece), scratch, result);
}

void AttendPiece(const PieceView& piece, const QueryTile& tile, const AttentionScratch& scratch,
                 const AttentionState& result) {
  switch (piece.dtype) {
    case base::KvDtype::kF32:
      return AttendTyped<float>(piece, tile, scratch, result);
    case base::KvDtype::kF16:
      return AttendTyped<uint16_t>(piece, tile, scratch, result);
    case base::KvDtype::kInt8:
      WidenScales(piece, scratch.scales);
      return AttendTyped<int8_t>(piece, tile, scratch, result);
  }
}

void WeighPiece(const PieceView& piece, const QueryTile& tile, const AttentionScratch& scratch,
                const AttentionState& total, int64_t* weights) {
  switch (piece.dtype) {
    case base::KvDtype::kF32:
      return WeighStrips(piece, tile, Direct<float>(piece), scratch, total, weights);
    case base::KvDtype::kF16:
      return WeighStrips(piece, tile, Direct<uint16_t>(piece), scratch, total, weights);
    case base::KvDtype::kInt8:
      WidenScales(piece, scratch.scales);
      return WeighStrips(piece, tile, Direct<int8_t>(piece), scratch, total, weights);
  }
}

float Exp2Of(float x) {
  float lanes[kLanes];
  Store(lanes, Exp2(Set1(x)));
  return lanes[0];
}

void Merge(const AttentionState& piece, int queries, int64_t dim_stride,
           const AttentionState& state) {
  for (int q = 0; q < queries; ++q) {
    if (piece.max[q] == kMinusInf) continue;
    const float max = piece.max[q] > state.max[q] ? piece.max[q] : state.max[q];
    const float old_factor = Exp2Of(state.max[q] - max);
    const float new_factor = Exp2Of(piece.max[q] - max);
    state.max[q] = max;
    state.sum[q] = __builtin_fmaf(state.sum[q], old_factor, piece.sum[q] * new_factor);
    float* to = state.out + q * dim_stride;
    const float* from = piece.out + q * dim_stride;
    for (int64_t d = 0; d < dim_stride; d += kLanes) {
      const Vec later = Mul(Load(from + d), Set1(new_factor));
      Store(to + d, Fma(Load(to + d), Set1(old_factor), later));
    }
  }
}

void Finish(const AttentionState& state, int q, int64_t dim_stride, int head_dim, float* to) {
  const Vec factor = Set1(1.0f / state.sum[q]);
  const float* from = state.out + q * dim_stride;
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    // Adding 0 leaves no -0, which would show how a row was tiled.
    const Vec value = Fma(Load(from + d), factor, Zero());
    const int64_t left = head_dim - d;
    if (left >= kLanes) {
      Store(to + d, value);
    } else {
      StorePart(to + d, value, left);
    }
  }
}

}  // namespace

extern const AttentionKernels kAttentionKernels;
const AttentionKernels kAttentionKernels = {AttendPiece, WeighPiece, Merge, Finish};

}  // namespace tokend::cpu::TOKEND_SIMD_NAMESPACE

#endif  // TOKEND_CORE_CPU_ATTENTION_KERNELS_IMPL_H_
