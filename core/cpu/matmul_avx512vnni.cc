#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "core/cpu/matmul_impl.h"

namespace tokend::cpu {
namespace {

struct Avx512Vnni {
  using F = __m512;
  using I = __m512i;
  using C = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kVectors = kPanelOutputs / kLanes;
  static constexpr int kRegisters = 32;
  static constexpr int kTileRows = 6;
  static constexpr int VectorsFor(int /*rows*/) { return 2; }
  // See matmul_formats.h.
  static constexpr int kDirectRows = 4;
  static constexpr bool kOffsetStarts = true;

  static TOKEND_INLINE F Zero() { return _mm512_setzero_ps(); }
  static TOKEND_INLINE F Load(const float* p) { return _mm512_loadu_ps(p); }
  static TOKEND_INLINE void Store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static TOKEND_INLINE F Broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static TOKEND_INLINE F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static TOKEND_INLINE F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static TOKEND_INLINE F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static TOKEND_INLINE F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static TOKEND_INLINE F ToFloat(I v) { return _mm512_cvtepi32_ps(v); }
  static TOKEND_INLINE F LoadF16(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static TOKEND_INLINE F LoadBf16(const uint8_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static TOKEND_INLINE F LoadU8(const uint8_t* p) {
    return ToFloat(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static TOKEND_INLINE F LoadS8(const uint8_t* p) {
    return ToFloat(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }

  static TOKEND_INLINE I BroadcastInt(const int32_t* p) { return _mm512_set1_epi32(*p); }
  static TOKEND_INLINE I AddInt(I a, I b) { return _mm512_add_epi32(a, b); }
  static TOKEND_INLINE I ShiftLeft7(I v) { return _mm512_slli_epi32(v, 7); }

  static TOKEND_INLINE C LoadCodes(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static TOKEND_INLINE void StoreCodes(uint8_t* p, C v) { _mm512_storeu_si512(p, v); }
  static TOKEND_INLINE C LowNibbles(C v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
  static TOKEND_INLINE C HighNibbles(C v) { return LowNibbles(_mm512_srli_epi16(v, 4)); }
  static TOKEND_INLINE C AddCodes(C v, char offset) {
    return _mm512_add_epi8(v, _mm512_set1_epi8(offset));
  }
  static TOKEND_INLINE C BroadcastQuad(const int8_t* p) {
    int32_t quad;
    std::memcpy(&quad, p, sizeof(quad));
    return _mm512_set1_epi32(quad);
  }
  // The codes of one input each.
  static TOKEND_INLINE void SplitCodes(C v, F (&out)[4]) {
    const __m512i mask = _mm512_set1_epi32(255);
    out[0] = ToFloat(_mm512_and_si512(v, mask));
    out[1] = ToFloat(_mm512_and_si512(_mm512_srli_epi32(v, 8), mask));
    out[2] = ToFloat(_mm512_and_si512(_mm512_srli_epi32(v, 16), mask));
    out[3] = ToFloat(_mm512_srli_epi32(v, 24));
  }

  static TOKEND_INLINE int32_t Sum16(const int32_t* p) {
    return _mm512_reduce_add_epi32(_mm512_loadu_si512(p));
  }
  static TOKEND_INLINE int32_t LargestMagnitude32(const float* p) {
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    const __m512i low = _mm512_and_si512(_mm512_loadu_si512(p), mask);
    const __m512i high = _mm512_and_si512(_mm512_loadu_si512(p + 16), mask);
    return _mm512_reduce_max_epi32(_mm512_max_epi32(low, high));
  }

  // Codes below 128 and codes that count from 128 take the same instruction; the
  // latter's accumulators start at -128 times the sum of the inputs.
  template <bool kFrom128>
  struct Dpbusd {
    using A = __m512i;
    static constexpr bool kWide = true;  // A is the sum itself, in 32 bits
    static constexpr bool kStarts = kFrom128;
    static constexpr float kZero = kFrom128 ? 128 : 0;
    // Accumulators that start as copies of one zero would cost an execution slot
    // each; a processor clears a register for free.
    static TOKEND_INLINE A Zero() {
      A zero;
      asm volatile("vpxord %0, %0, %0" : "=v"(zero));
      return zero;
    }
    static TOKEND_INLINE A Step(A sum, C codes, C quad) {
      return _mm512_dpbusd_epi32(sum, codes, quad);
    }
    static TOKEND_INLINE I Total(A sum) { return sum; }
  };
  using NibbleDot = Dpbusd<false>;
  using SmallDot = Dpbusd<false>;
  using OffsetDot = Dpbusd<true>;
};

}  // namespace

constexpr MatmulKernels kMatmulAvx512Vnni = MakeMatmulKernels<Avx512Vnni>();

}  // namespace tokend::cpu
