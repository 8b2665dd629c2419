// Sixteen f32 lanes, the same on every instruction set: Vec.
//
// For kernel files only. Such a file is compiled for one instruction set, defines
// one of TOKEND_SIMD_{AVX512,AVX2,NEON,PLAIN} before this include, includes no
// other header with inline functions (the linker might choose their copy for
// everyone) and puts its code in TOKEND_SIMD_NAMESPACE.
//
// Every operation rounds as IEEE 754 says, lane by lane, and sums over lanes have
// one fixed order: kernels written with Vec give the same bits everywhere.
#ifndef TOKEND_CORE_CPU_SIMD_H_
#define TOKEND_CORE_CPU_SIMD_H_

#include <cstdint>

#if defined(TOKEND_SIMD_AVX512)
#include "core/cpu/simd_avx512.h"
#define TOKEND_SIMD_NAMESPACE avx512
#elif defined(TOKEND_SIMD_AVX2)
#include "core/cpu/simd_avx2.h"
#define TOKEND_SIMD_NAMESPACE avx2
#elif defined(TOKEND_SIMD_NEON)
#include "core/cpu/simd_neon.h"
#define TOKEND_SIMD_NAMESPACE neon
#elif defined(TOKEND_SIMD_PLAIN)
#include "core/cpu/simd_plain.h"
#define TOKEND_SIMD_NAMESPACE plain
#else
#error "no instruction set was chosen"
#endif

namespace tokend::cpu::TOKEND_SIMD_NAMESPACE {

inline constexpr int kLanes = 16;

inline int64_t Most(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// 2^x within 1 ulp of f32. Below -100 it is 0 (x = -Inf included); x is at most
// 126. NaN stays NaN. The polynomial is 1 + f g(f) with g the Chebyshev interpolant
// of (2^f - 1) / f of degree 5 on [-1/2, 1/2], relative error 1e-8.
inline Vec Exp2(Vec x) {
  const Vec n = Round(x);
  const Vec f = Sub(x, n);
  Vec p = Set1(0x1.44138ap-13f);
  p = Fma(p, f, Set1(0x1.5f0890p-10f));
  p = Fma(p, f, Set1(0x1.3b2a54p-7f));
  p = Fma(p, f, Set1(0x1.c6af6cp-5f));
  p = Fma(p, f, Set1(0x1.ebfbe0p-3f));
  p = Fma(p, f, Set1(0x1.62e430p-1f));
  p = Fma(p, f, Set1(1.0f));
  return ZeroWhereLess(x, -100.0f, AddToExponent(p, n));
}

// 2^x - 1 for x in [-100, 100], within 3 ulp of f32, near 0, too. NaN stays NaN. The
// polynomial is that of Exp2 without its 1.
inline Vec Exp2Minus1(Vec x) {
  const Vec n = Round(x);
  const Vec f = Sub(x, n);
  Vec p = Set1(0x1.44138ap-13f);
  p = Fma(p, f, Set1(0x1.5f0890p-10f));
  p = Fma(p, f, Set1(0x1.3b2a54p-7f));
  p = Fma(p, f, Set1(0x1.c6af6cp-5f));
  p = Fma(p, f, Set1(0x1.ebfbe0p-3f));
  p = Fma(p, f, Set1(0x1.62e430p-1f));
  const Vec power = AddToExponent(Set1(1.0f), n);
  return Fma(Mul(p, f), power, Sub(power, Set1(1.0f)));
}

// (e^2x - 1) / (e^2x + 1), within 8 ulp: relative to itself, however small x is.
inline Vec Tanh(Vec x) {
  // NaN is Min's and Max's second operand, and stays.
  const Vec exponent = Max(Set1(-60.0f), Min(Set1(60.0f), Mul(x, Set1(0x1.715476p+1f))));
  const Vec e = Exp2Minus1(exponent);
  return Div(e, Add(e, Set1(2.0f)));
}

// v in lanes [begin, end), `other` in the rest.
inline Vec KeepRange(Vec v, int64_t begin, int64_t end, float other) {
  return Blend(v, Set1(other), LaneRange(begin, end));
}

}  // namespace tokend::cpu::TOKEND_SIMD_NAMESPACE

#endif  // TOKEND_CORE_CPU_SIMD_H_
