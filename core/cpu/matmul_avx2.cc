#include "core/cpu/matmul_avx2_simd.h"

namespace tokend::cpu {
namespace {

struct Avx2 : Avx2Simd {
  static constexpr bool kOffsetStarts = false;

  // Pairs of products in 16 bits. A block has 8 steps, and 8 x 2 x 15 x 127 =
  // 30,480 fits, so nibbles are widened once a block.
  struct NibbleDot {
    using A = __m256i;  // 16 bits
    static constexpr bool kWide = false;
    static constexpr bool kStarts = false;
    static constexpr float kZero = 0;
    static TOKEND_INLINE A Zero() { return _mm256_setzero_si256(); }
    static TOKEND_INLINE A Step(A sum, C codes, C quad) {
      return _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, quad));
    }
    static TOKEND_INLINE I Total(A sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
  };

  struct WideDot {
    using A = __m256i;
    static constexpr bool kWide = true;
    static constexpr bool kStarts = false;
    static TOKEND_INLINE A Zero() { return _mm256_setzero_si256(); }
    static TOKEND_INLINE A AddPairs(A sum, __m256i pairs) {
      return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    static TOKEND_INLINE I Total(A sum) { return sum; }
  };

  // Codes to 31: a pair is at most 2 x 31 x 127.
  struct SmallDot : WideDot {
    static constexpr float kZero = 0;
    static TOKEND_INLINE A Step(A sum, C codes, C quad) {
      return AddPairs(sum, _mm256_maddubs_epi16(codes, quad));
    }
  };

  // The weight's sign moves to the input: |-128| is 128 as an unsigned byte, and
  // a pair is at most 2 x 128 x 127 = 32,512.
  struct OffsetDot : WideDot {
    static constexpr float kZero = 128;
    static TOKEND_INLINE A Step(A sum, C codes, C quad) {
      const C weights = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
      return AddPairs(
          sum, _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(quad, weights)));
    }
  };
};

}  // namespace

constexpr MatmulKernels kMatmulAvx2 = MakeMatmulKernels<Avx2>();

}  // namespace tokend::cpu
