// Vec for AVX-512 F, BW, DQ, VL; see simd.h.
#ifndef TOKEND_CORE_CPU_SIMD_AVX512_H_
#define TOKEND_CORE_CPU_SIMD_AVX512_H_

#include <immintrin.h>

#include <cstdint>

namespace tokend::cpu::avx512 {

struct Vec {
  __m512 v;
};
struct Mask {
  __mmask16 m;
};

inline __mmask16 FirstLanes(int64_t n) {
  return n <= 0 ? __mmask16{0} : n >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1 << n) - 1);
}
// Lanes [begin, end); either may lie outside [0, 16].
inline Mask LaneRange(int64_t begin, int64_t end) {
  return {static_cast<__mmask16>(FirstLanes(end) & ~FirstLanes(begin))};
}

inline Vec Zero() { return {_mm512_setzero_ps()}; }
inline Vec Set1(float x) { return {_mm512_set1_ps(x)}; }
inline Vec Load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void Store(float* to, Vec a) { _mm512_storeu_ps(to, a.v); }
inline Vec LoadPart(const float* from, int64_t n) {
  return {_mm512_maskz_loadu_ps(FirstLanes(n), from)};
}
inline void StorePart(float* to, Vec a, int64_t n) {
  _mm512_mask_storeu_ps(to, FirstLanes(n), a.v);
}
inline Vec Load(const uint16_t* from) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
inline Vec Load(const int8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
inline void StoreF16(uint16_t* to, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline Vec Add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec Sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec Mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec Div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec Fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// b where either is NaN.
inline Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec Min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Vec Abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
inline Vec Round(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// Lanes 2i and 2i + 1 change places.
inline Vec SwapPairs(Vec a) { return {_mm512_permute_ps(a.v, 0xb1)}; }
inline Vec Blend(Vec where_set, Vec where_clear, Mask mask) {
  return {_mm512_mask_blend_ps(mask.m, where_clear.v, where_set.v)};
}
inline Vec ZeroWhereLess(Vec x, float limit, Vec a) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(limit), _CMP_NLT_UQ), a.v)};
}
// a * 2^n for whole n; the result is a normal number.
inline Vec AddToExponent(Vec a, Vec n) {
  const __m512i shifted = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), shifted))};
}

// Lane i with lane i + 8, then i + 4, i + 2, i + 1.
inline float SumLanes(Vec a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
// NaN lanes may or may not count.
inline float MaxLanes(Vec a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

}  // namespace tokend::cpu::avx512

#endif  // TOKEND_CORE_CPU_SIMD_AVX512_H_
