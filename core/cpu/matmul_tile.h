// The inner loops of a matmul: some rows against some outputs of a panel, sums in
// registers. See matmul.h for the order of operations.
#ifndef TOKEND_CORE_CPU_MATMUL_TILE_H_
#define TOKEND_CORE_CPU_MATMUL_TILE_H_

#include <cstdint>

#include "core/cpu/activation_blocks.h"
#include "core/cpu/matmul_formats.h"

namespace tokend::cpu {

// R rows x N vectors of outputs in an int mode. Block: ActivationBlock8 or 16.
template <class S, class Format, class Block, int R, int N>
struct IntTile {
  using F = typename S::F;
  using I = typename S::I;
  using C = typename S::C;
  using Dot = typename Format::Dot;
  using A = typename Dot::A;
  static constexpr bool kTwoTerms = sizeof(Block) == sizeof(ActivationBlock16);
  // Both terms in one pass over the codes, where the registers allow it.
  static constexpr bool kOnePass = kTwoTerms && 3 * R * N + 2 * N + 4 <= S::kRegisters;
  // An offset of 8 goes into the start of the accumulator or is added at the end.
  static constexpr bool kStart8 = Format::kZero8 && !kTwoTerms && Dot::kWide;
  static constexpr bool kEnd8 = Format::kZero8 && !kStart8;

  // acc: [R][32] f32; starts from zero if `first`.
  static TOKEND_NOINLINE void Run(const uint8_t* weights, int64_t blocks, int first_vector,
                                  const uint8_t* rows, int64_t row_bytes, bool first, float* acc) {
    F sum[R][N];
    acc += first_vector * S::kLanes;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) {
        sum[r][n] = first ? S::Zero() : S::Load(acc + r * kPanelOutputs + n * S::kLanes);
      }
    }
    for (int64_t b = 0; b < blocks; ++b) {
      const BlockParts parts = Format::Parts(weights, b);
      const Rows x = {rows + b * static_cast<int64_t>(sizeof(Block)), row_bytes};
#pragma GCC unroll 2
      for (int g = 0; g < Format::kGroups; ++g) AddGroup(parts, g, first_vector, x, sum);
      if constexpr (Format::kMinima) AddMinima(parts, first_vector, x, sum);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) S::Store(acc + r * kPanelOutputs + n * S::kLanes, sum[r][n]);
    }
  }

 private:
  struct Rows {
    const uint8_t* first;
    int64_t bytes;
    TOKEND_INLINE const Block* operator[](int r) const {
      return reinterpret_cast<const Block*>(first + r * bytes);
    }
  };

  static TOKEND_INLINE void AddGroup(const BlockParts& parts, int g, int v, const Rows& x,
                                     F (&sum)[R][N]) {
    I dots[R][N];
    if constexpr (kTwoTerms) {
      TwoTerms(parts, g, v, x, dots);
    } else {
      A a[R][N];
      Start<kStart8>(g, x, a);
      Accumulate<kHighOnly>(parts, g, v, x, a, a);
      Totals(a, dots);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) {
        if constexpr (kEnd8) dots[r][n] = S::AddInt(dots[r][n], S::BroadcastInt(&x[r]->start8));
        const F scale = S::Mul(Format::Scale(parts, g, v + n), S::Broadcast(&x[r]->d));
        sum[r][n] = S::Fma(S::ToFloat(dots[r][n]), scale, sum[r][n]);
      }
    }
  }

  static TOKEND_INLINE void AddMinima(const BlockParts& parts, int v, const Rows& x,
                                      F (&sum)[R][N]) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      const F minimum = Format::Minimum(parts, v + n);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        sum[r][n] = S::Fma(minimum, S::Broadcast(&x[r]->d_sum), sum[r][n]);
      }
    }
  }

  // 128 * (dot with the high terms) + dot with the low terms.
  static TOKEND_INLINE void TwoTerms(const BlockParts& parts, int g, int v, const Rows& x,
                                     I (&dots)[R][N]) {
    A high[R][N];
    A low[R][N];
    Start<false>(g, x, high);
    if constexpr (kOnePass) {
      StartAtZero(low);
      Accumulate<kBoth>(parts, g, v, x, high, low);
      I low_dots[R][N];
      Totals(high, dots);
      Totals(low, low_dots);
      ForAll(
          [&](int r, int n) { dots[r][n] = S::AddInt(S::ShiftLeft7(dots[r][n]), low_dots[r][n]); });
    } else {
      Accumulate<kHighOnly>(parts, g, v, x, high, high);
      Totals(high, dots);
      if constexpr (Dot::kWide) {
        ForAll([&](int r, int n) { low[r][n] = S::ShiftLeft7(dots[r][n]); });
        Accumulate<kLowOnly>(parts, g, v, x, low, low);
        Totals(low, dots);
      } else {
        StartAtZero(low);
        Accumulate<kLowOnly>(parts, g, v, x, low, low);
        I low_dots[R][N];
        Totals(low, low_dots);
        ForAll([&](int r, int n) {
          dots[r][n] = S::AddInt(S::ShiftLeft7(dots[r][n]), low_dots[r][n]);
        });
      }
    }
  }

  template <class Function>
  static TOKEND_INLINE void ForAll(Function function) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) function(r, n);
    }
  }

  static TOKEND_INLINE void StartAtZero(A (&a)[R][N]) {
    ForAll([&](int r, int n) { a[r][n] = Dot::Zero(); });
  }

  static TOKEND_INLINE void Totals(const A (&a)[R][N], I (&dots)[R][N]) {
    ForAll([&](int r, int n) { dots[r][n] = Dot::Total(a[r][n]); });
  }

  template <bool kFrom8>
  static TOKEND_INLINE void Start(int g, const Rows& x, A (&a)[R][N]) {
    if constexpr (Dot::kStarts) {
      ForAll([&](int r, int n) {
        a[r][n] = S::BroadcastInt(Format::kGroups == 1 ? &x[r]->start128 : &x[r]->start128_half[g]);
      });
    } else if constexpr (kFrom8) {
      ForAll([&](int r, int n) { a[r][n] = S::BroadcastInt(&x[r]->start8); });
    } else {
      StartAtZero(a);
    }
  }

  enum Terms { kHighOnly, kLowOnly, kBoth };

  // The high terms of a two-term block, or all of a one-term block.
  static TOKEND_INLINE const int8_t* High(const Block* block) {
    return reinterpret_cast<const int8_t*>(block);
  }
  static TOKEND_INLINE const int8_t* Low(const Block* block) { return High(block) + 32; }

  // One step: codes of four inputs `k` of all outputs.
  template <Terms kTerms>
  static TOKEND_INLINE void Step(const C (&codes)[N], int k, const Rows& x, A (&a)[R][N],
                                 A (&low)[R][N]) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const C quad = S::BroadcastQuad((kTerms == kLowOnly ? Low(x[r]) : High(x[r])) + k);
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) a[r][n] = Dot::Step(a[r][n], codes[n], quad);
      if constexpr (kTerms == kBoth) {
        const C low_quad = S::BroadcastQuad(Low(x[r]) + k);
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) low[r][n] = Dot::Step(low[r][n], codes[n], low_quad);
      }
    }
  }

  template <Terms kTerms>
  static TOKEND_INLINE void Accumulate(const BlockParts& parts, int g, int v, const Rows& x,
                                       A (&a)[R][N], A (&low)[R][N]) {
    constexpr int kQuads = (Format::kNibbles ? 4 : 8) / Format::kGroups;
    const int first_quad = g * kQuads;
#pragma GCC unroll 8
    for (int q = first_quad; q < first_quad + kQuads; ++q) {
      C codes[N];
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) {
        codes[n] = S::LoadCodes(parts.codes + q * 128 + (v + n) * S::kLanes * 4);
      }
      if constexpr (Format::kNibbles) {
        C nibbles[N];
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) nibbles[n] = S::LowNibbles(codes[n]);
        Step<kTerms>(nibbles, 4 * q, x, a, low);
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) nibbles[n] = S::HighNibbles(codes[n]);
        Step<kTerms>(nibbles, 16 + 4 * q, x, a, low);
      } else {
        Step<kTerms>(codes, 4 * q, x, a, low);
      }
    }
  }
};

// R rows x N vectors of outputs in f32.
template <class S, class Format, int R, int N>
struct FloatTile {
  using F = typename S::F;

  static TOKEND_NOINLINE void Run(const uint8_t* weights, int64_t blocks, int first_vector,
                                  const uint8_t* rows, int64_t row_bytes, bool first, float* acc) {
    F sum[R][N];
    acc += first_vector * S::kLanes;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) {
        sum[r][n] = first ? S::Zero() : S::Load(acc + r * kPanelOutputs + n * S::kLanes);
      }
    }
    constexpr int kInputBytes = kPanelOutputs * Format::kElementBytes;
    weights += first_vector * S::kLanes * Format::kElementBytes;
    for (int64_t b = 0; b < blocks; ++b) {
      F part[R][N];
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) part[r][n] = S::Zero();
      }
      for (int k = 0; k < kBlockInputs; ++k, weights += kInputBytes, rows += sizeof(float)) {
        F w[N];
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) {
          w[n] = Format::Load(weights + n * S::kLanes * Format::kElementBytes);
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const F x = S::Broadcast(reinterpret_cast<const float*>(rows + r * row_bytes));
#pragma GCC unroll 16
          for (int n = 0; n < N; ++n) part[r][n] = S::Fma(w[n], x, part[r][n]);
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) sum[r][n] = S::Add(sum[r][n], part[r][n]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) S::Store(acc + r * kPanelOutputs + n * S::kLanes, sum[r][n]);
    }
  }
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_MATMUL_TILE_H_
