// What the 256-bit x86 kernels share; the dot products differ.
#ifndef TOKEND_CORE_CPU_MATMUL_AVX2_SIMD_H_
#define TOKEND_CORE_CPU_MATMUL_AVX2_SIMD_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "core/cpu/matmul_impl.h"

namespace tokend::cpu {
// One instance per translation unit: each is compiled for another processor.
namespace {

struct Avx2Simd {
  using F = __m256;
  using I = __m256i;
  using C = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kVectors = kPanelOutputs / kLanes;
  static constexpr int kRegisters = 16;
  static constexpr int kTileRows = 3;
  static constexpr int VectorsFor(int rows) { return rows == 1 ? 4 : 2; }
  // See matmul_formats.h.
  static constexpr int kDirectRows = 2;

  static TOKEND_INLINE F Zero() { return _mm256_setzero_ps(); }
  static TOKEND_INLINE F Load(const float* p) { return _mm256_loadu_ps(p); }
  static TOKEND_INLINE void Store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static TOKEND_INLINE F Broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static TOKEND_INLINE F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static TOKEND_INLINE F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static TOKEND_INLINE F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static TOKEND_INLINE F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static TOKEND_INLINE F ToFloat(I v) { return _mm256_cvtepi32_ps(v); }
  static TOKEND_INLINE F LoadF16(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static TOKEND_INLINE F LoadBf16(const uint8_t* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static TOKEND_INLINE F LoadU8(const uint8_t* p) {
    return ToFloat(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static TOKEND_INLINE F LoadS8(const uint8_t* p) {
    return ToFloat(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }

  static TOKEND_INLINE I BroadcastInt(const int32_t* p) { return _mm256_set1_epi32(*p); }
  static TOKEND_INLINE I AddInt(I a, I b) { return _mm256_add_epi32(a, b); }
  static TOKEND_INLINE I ShiftLeft7(I v) { return _mm256_slli_epi32(v, 7); }

  static TOKEND_INLINE I LoadInts(const int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static TOKEND_INLINE int32_t Sum16(const int32_t* p) {
    const I eight = _mm256_add_epi32(LoadInts(p), LoadInts(p + 8));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
  }
  static TOKEND_INLINE int32_t LargestMagnitude32(const float* p) {
    const I mask = _mm256_set1_epi32(0x7fffffff);
    I largest = _mm256_setzero_si256();
    for (int i = 0; i < 32; i += 8) {
      const I bits = _mm256_castps_si256(_mm256_loadu_ps(p + i));
      largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, mask));
    }
    __m128i four =
        _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
  }

  static TOKEND_INLINE C LoadCodes(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static TOKEND_INLINE void StoreCodes(uint8_t* p, C v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
  static TOKEND_INLINE C LowNibbles(C v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
  static TOKEND_INLINE C HighNibbles(C v) { return LowNibbles(_mm256_srli_epi16(v, 4)); }
  static TOKEND_INLINE C AddCodes(C v, char offset) {
    return _mm256_add_epi8(v, _mm256_set1_epi8(offset));
  }
  static TOKEND_INLINE C BroadcastQuad(const int8_t* p) {
    int32_t quad;
    std::memcpy(&quad, p, sizeof(quad));
    return _mm256_set1_epi32(quad);
  }
  // The codes of one input each.
  static TOKEND_INLINE void SplitCodes(C v, F (&out)[4]) {
    const __m256i mask = _mm256_set1_epi32(255);
    out[0] = ToFloat(_mm256_and_si256(v, mask));
    out[1] = ToFloat(_mm256_and_si256(_mm256_srli_epi32(v, 8), mask));
    out[2] = ToFloat(_mm256_and_si256(_mm256_srli_epi32(v, 16), mask));
    out[3] = ToFloat(_mm256_srli_epi32(v, 24));
  }
};

}  // namespace
}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_MATMUL_AVX2_SIMD_H_
