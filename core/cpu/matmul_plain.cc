#include <cstdint>
#include <cstring>

#include "core/cpu/matmul_impl.h"

namespace tokend::cpu {
namespace {

// Any little-endian processor, in the compiler's own vectors of 16 bytes.
struct Plain {
  static constexpr int kLanes = 4;
  static constexpr int kVectors = kPanelOutputs / kLanes;
  using F = float __attribute__((vector_size(16)));
  using I = int32_t __attribute__((vector_size(16)));
  using C = int8_t __attribute__((vector_size(16)));
  using Bytes = uint8_t __attribute__((vector_size(16)));
  static constexpr int kRegisters = 16;
  static constexpr int kTileRows = 1;
  static constexpr int VectorsFor(int /*rows*/) { return 2; }
  // See matmul_formats.h.
  static constexpr int kDirectRows = 0;
  static constexpr bool kOffsetStarts = false;

  template <class T>
  static TOKEND_INLINE T LoadAt(const void* p) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
  }
  static TOKEND_INLINE float FromHalf(uint16_t half) {
    const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
    const uint32_t exponent = half >> 10 & 31;
    const uint32_t mantissa = half & 1023;
    if (exponent == 0) return sign * (static_cast<float>(mantissa) * 0x1p-24f);
    const uint32_t bits = (exponent == 31 ? 255 : exponent + 112) << 23 | mantissa << 13;
    return sign * LoadAt<float>(&bits);
  }

  static TOKEND_INLINE F Zero() { return F{}; }
  static TOKEND_INLINE F Load(const float* p) { return LoadAt<F>(p); }
  static TOKEND_INLINE void Store(float* p, F v) { std::memcpy(p, &v, sizeof(v)); }
  static TOKEND_INLINE F Broadcast(const float* p) { return F{*p, *p, *p, *p}; }
  static TOKEND_INLINE F Fma(F a, F b, F c) {
    return F{__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1]),
             __builtin_fmaf(a[2], b[2], c[2]), __builtin_fmaf(a[3], b[3], c[3])};
  }
  static TOKEND_INLINE F Mul(F a, F b) { return a * b; }
  static TOKEND_INLINE F Add(F a, F b) { return a + b; }
  static TOKEND_INLINE F Sub(F a, F b) { return a - b; }
  static TOKEND_INLINE F ToFloat(I v) { return __builtin_convertvector(v, F); }
  static TOKEND_INLINE F LoadF16(const uint8_t* p) {
    return F{FromHalf(LoadAt<uint16_t>(p)), FromHalf(LoadAt<uint16_t>(p + 2)),
             FromHalf(LoadAt<uint16_t>(p + 4)), FromHalf(LoadAt<uint16_t>(p + 6))};
  }
  static TOKEND_INLINE F LoadBf16(const uint8_t* p) {
    const I bits = I{LoadAt<uint16_t>(p), LoadAt<uint16_t>(p + 2), LoadAt<uint16_t>(p + 4),
                     LoadAt<uint16_t>(p + 6)}
                   << 16;
    return LoadAt<F>(&bits);
  }
  static TOKEND_INLINE F LoadU8(const uint8_t* p) { return ToFloat(I{p[0], p[1], p[2], p[3]}); }
  static TOKEND_INLINE F LoadS8(const uint8_t* p) {
    return ToFloat(I{static_cast<int8_t>(p[0]), static_cast<int8_t>(p[1]),
                     static_cast<int8_t>(p[2]), static_cast<int8_t>(p[3])});
  }

  static TOKEND_INLINE I BroadcastInt(const int32_t* p) { return I{*p, *p, *p, *p}; }
  static TOKEND_INLINE I AddInt(I a, I b) { return a + b; }
  static TOKEND_INLINE I ShiftLeft7(I v) { return v * 128; }

  static TOKEND_INLINE C LoadCodes(const uint8_t* p) { return LoadAt<C>(p); }
  static TOKEND_INLINE void StoreCodes(uint8_t* p, C v) { std::memcpy(p, &v, sizeof(v)); }
  static TOKEND_INLINE C LowNibbles(C v) { return v & 15; }
  static TOKEND_INLINE C HighNibbles(C v) {
    return reinterpret_cast<C>(reinterpret_cast<Bytes>(v) >> 4);
  }
  static TOKEND_INLINE C AddCodes(C v, char offset) { return v + static_cast<int8_t>(offset); }
  static TOKEND_INLINE C BroadcastQuad(const int8_t* p) {
    const auto quad = LoadAt<int32_t>(p);
    return reinterpret_cast<C>(I{quad, quad, quad, quad});
  }
  // The codes of one input each.
  static TOKEND_INLINE void SplitCodes(C v, F (&out)[4]) {
    const I lanes = reinterpret_cast<I>(v);
    out[0] = ToFloat(lanes & 255);
    out[1] = ToFloat(lanes >> 8 & 255);
    out[2] = ToFloat(lanes >> 16 & 255);
    out[3] = ToFloat(lanes >> 24 & 255);
  }

  static TOKEND_INLINE int32_t Sum16(const int32_t* p) {
    const I sums = LoadAt<I>(p) + LoadAt<I>(p + 4) + LoadAt<I>(p + 8) + LoadAt<I>(p + 12);
    return sums[0] + sums[1] + sums[2] + sums[3];
  }
  static TOKEND_INLINE int32_t LargestMagnitude32(const float* p) {
    int32_t largest = 0;
    for (int i = 0; i < 32; ++i) {
      const int32_t bits = LoadAt<int32_t>(p + i) & 0x7fffffff;
      largest = bits > largest ? bits : largest;
    }
    return largest;
  }

  // Bytes 0 and 1, 2 and 3 and so on of 32-bit lanes as 16-bit values, products
  // of which are added in 32 bits.
  template <bool kFrom128>
  struct WordDot {
    using Words = int16_t __attribute__((vector_size(16)));
    using A = I;
    static constexpr bool kWide = true;
    static constexpr bool kStarts = false;
    static constexpr float kZero = kFrom128 ? 128 : 0;
    static TOKEND_INLINE A Zero() { return I{}; }
    static TOKEND_INLINE Words Even(C v) { return reinterpret_cast<Words>(v) << 8 >> 8; }
    static TOKEND_INLINE Words Odd(C v) { return reinterpret_cast<Words>(v) >> 8; }
    static TOKEND_INLINE I PairSums(Words products) {
      const I pairs = reinterpret_cast<I>(products);
      return (pairs << 16 >> 16) + (pairs >> 16);
    }
    static TOKEND_INLINE A Step(A sum, C codes, C quad) {
      // As signed bytes: codes from 128 become code - 128, others are below 128.
      const C weights = kFrom128 ? codes ^ static_cast<int8_t>(-128) : codes;
      return sum + PairSums(Even(weights) * Even(quad)) + PairSums(Odd(weights) * Odd(quad));
    }
    static TOKEND_INLINE I Total(A sum) { return sum; }
  };
  using NibbleDot = WordDot<false>;
  using SmallDot = WordDot<false>;
  using OffsetDot = WordDot<true>;
};

}  // namespace

constexpr MatmulKernels kMatmulPlain = MakeMatmulKernels<Plain>();

}  // namespace tokend::cpu
