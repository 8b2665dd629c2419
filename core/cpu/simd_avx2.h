// Vec for AVX2, FMA and F16C; see simd.h.
#ifndef TOKEND_CORE_CPU_SIMD_AVX2_H_
#define TOKEND_CORE_CPU_SIMD_AVX2_H_

#include <immintrin.h>

#include <cstdint>

namespace tokend::cpu::avx2 {

struct Vec {
  __m256 lo, hi;  // lanes 0-7, 8-15
};
struct Mask {
  __m256 lo, hi;  // all bits of a lane
};

// Lanes [begin, end); either may lie outside [0, 16].
inline Mask LaneRange(int64_t begin, int64_t end) {
  const int from = begin < 0 ? 0 : begin > 16 ? 16 : static_cast<int>(begin);
  const int to = end < 0 ? 0 : end > 16 ? 16 : static_cast<int>(end);
  const __m256i before = _mm256_set1_epi32(from - 1), limit = _mm256_set1_epi32(to);
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
  auto inside = [&](__m256i lane) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_cmpgt_epi32(lane, before), _mm256_cmpgt_epi32(limit, lane)));
  };
  return {inside(low), inside(high)};
}

inline Vec Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec Load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void Store(float* to, Vec a) {
  _mm256_storeu_ps(to, a.lo);
  _mm256_storeu_ps(to + 8, a.hi);
}
inline Vec LoadPart(const float* from, int64_t n) {
  const Mask mask = LaneRange(0, n);
  return {_mm256_maskload_ps(from, _mm256_castps_si256(mask.lo)),
          _mm256_maskload_ps(from + 8, _mm256_castps_si256(mask.hi))};
}
inline void StorePart(float* to, Vec a, int64_t n) {
  const Mask mask = LaneRange(0, n);
  _mm256_maskstore_ps(to, _mm256_castps_si256(mask.lo), a.lo);
  _mm256_maskstore_ps(to + 8, _mm256_castps_si256(mask.hi), a.hi);
}
inline Vec Load(const uint16_t* from) {
  const auto* at = reinterpret_cast<const __m128i*>(from);
  return {_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
}
inline Vec Load(const int8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline void StoreF16(uint16_t* to, Vec a) {
  auto* at = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(at, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(at + 1, _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

inline Vec Add(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Vec Sub(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Vec Mul(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Vec Div(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Vec Fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
// b where either is NaN.
inline Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Vec Min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline Vec Abs(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline Vec Round(Vec a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}
// Lanes 2i and 2i + 1 change places.
inline Vec SwapPairs(Vec a) {
  return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)};
}
inline Vec Blend(Vec where_set, Vec where_clear, Mask mask) {
  return {_mm256_blendv_ps(where_clear.lo, where_set.lo, mask.lo),
          _mm256_blendv_ps(where_clear.hi, where_set.hi, mask.hi)};
}
inline Vec ZeroWhereLess(Vec x, float limit, Vec a) {
  const __m256 bound = _mm256_set1_ps(limit);
  return {_mm256_and_ps(_mm256_cmp_ps(x.lo, bound, _CMP_NLT_UQ), a.lo),
          _mm256_and_ps(_mm256_cmp_ps(x.hi, bound, _CMP_NLT_UQ), a.hi)};
}
// a * 2^n for whole n; the result is a normal number.
inline Vec AddToExponent(Vec a, Vec n) {
  auto add = [](__m256 x, __m256 by) {
    const __m256i shifted = _mm256_slli_epi32(_mm256_cvtps_epi32(by), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), shifted));
  };
  return {add(a.lo, n.lo), add(a.hi, n.hi)};
}

// Lane i with lane i + 8, then i + 4, i + 2, i + 1.
inline float SumLanes(Vec a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
// NaN lanes may or may not count.
inline float MaxLanes(Vec a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

}  // namespace tokend::cpu::avx2

#endif  // TOKEND_CORE_CPU_SIMD_AVX2_H_
