#include "tests/bench/peaks.h"

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace tokend::bench {
namespace {

constexpr int kRounds = 4000;
// As many independent chains as hide the latency of two a cycle.
constexpr int kChains = 12;

// Steps all chains kRounds times; the empty asm keeps every step.
#define TOKEND_PEAK_LOOP(Type, start, constraint, step)                                     \
  Type chains[kChains];                                                                     \
  for (Type & chain : chains) chain = start;                                                \
  for (int i = 0; i < kRounds; ++i) {                                                       \
    _Pragma("GCC unroll 12") for (int j = 0; j < kChains; ++j) chains[j] = step(chains[j]); \
  }                                                                                         \
  for (Type & chain : chains) asm volatile("" : "+" constraint(chain))

#if defined(__x86_64__)
#define TOKEND_TARGET(features) __attribute__((target(features)))

TOKEND_TARGET("avx512f,avx512bw,avx512vnni") void Int8Avx512() {
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
#define STEP(c) _mm512_dpbusd_epi32(c, a, b)
  TOKEND_PEAK_LOOP(__m512i, _mm512_setzero_si512(), "v", STEP);
#undef STEP
}
TOKEND_TARGET("avx2,avxvnni") void Int8AvxVnni() {
  const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
#define STEP(c) _mm256_dpbusd_avx_epi32(c, a, b)
  TOKEND_PEAK_LOOP(__m256i, _mm256_setzero_si256(), "x", STEP);
#undef STEP
}
// Sums of pairs in 16 bits: the fewest instructions a product.
TOKEND_TARGET("avx2") void Int8Avx2() {
  const __m256i b = _mm256_set1_epi8(5);
#define STEP(c) _mm256_add_epi16(c, _mm256_maddubs_epi16(c, b))
  TOKEND_PEAK_LOOP(__m256i, _mm256_setzero_si256(), "x", STEP);
#undef STEP
}
TOKEND_TARGET("avx512f") void F32Avx512() {
  const __m512 a = _mm512_set1_ps(1.5f), b = _mm512_set1_ps(0.25f);
#define STEP(c) _mm512_fmadd_ps(c, b, a)
  TOKEND_PEAK_LOOP(__m512, _mm512_setzero_ps(), "v", STEP);
#undef STEP
}
TOKEND_TARGET("avx2,fma") void F32Avx2() {
  const __m256 a = _mm256_set1_ps(1.5f), b = _mm256_set1_ps(0.25f);
#define STEP(c) _mm256_fmadd_ps(c, b, a)
  TOKEND_PEAK_LOOP(__m256, _mm256_setzero_ps(), "x", STEP);
#undef STEP
}
#elif defined(__aarch64__)
__attribute__((target("arch=armv8.2-a+dotprod"))) void Int8NeonDot() {
  const int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
#define STEP(c) vdotq_s32(c, a, b)
  TOKEND_PEAK_LOOP(int32x4_t, vdupq_n_s32(0), "w", STEP);
#undef STEP
}
void F32Neon() {
  const float32x4_t a = vdupq_n_f32(1.5f), b = vdupq_n_f32(0.25f);
#define STEP(c) vfmaq_f32(a, c, b)
  TOKEND_PEAK_LOOP(float32x4_t, vdupq_n_f32(0), "w", STEP);
#undef STEP
}
#endif

PeakLoop Loop(void (*run)(), int products) { return {run, 2.0 * kRounds * kChains * products}; }

}  // namespace

PeakLoop Int8Peak(cpu::Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case cpu::Isa::kAvx512Vnni:
      return Loop(Int8Avx512, 64);
    case cpu::Isa::kAvxVnni:
      return Loop(Int8AvxVnni, 32);
    case cpu::Isa::kAvx2:
      return Loop(Int8Avx2, 32);
#elif defined(__aarch64__)
    case cpu::Isa::kNeonDot:
      return Loop(Int8NeonDot, 16);
#endif
    default:
      return {};
  }
}

PeakLoop F32Peak(cpu::Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case cpu::Isa::kAvx512Vnni:
      return Loop(F32Avx512, 16);
    case cpu::Isa::kAvxVnni:
    case cpu::Isa::kAvx2:
      return Loop(F32Avx2, 8);
#elif defined(__aarch64__)
    case cpu::Isa::kNeonDot:
      return Loop(F32Neon, 4);
#endif
    default:
      return {};
  }
}

}  // namespace tokend::bench
