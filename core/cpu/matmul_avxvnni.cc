#include "core/cpu/matmul_avx2_simd.h"

namespace tokend::cpu {
namespace {

struct AvxVnni : Avx2Simd {
  static constexpr bool kOffsetStarts = true;

  // Codes below 128 and codes that count from 128 take the same instruction; the
  // latter's accumulators start at -128 times the sum of the inputs.
  template <bool kFrom128>
  struct Dpbusd {
    using A = __m256i;
    static constexpr bool kWide = true;
    static constexpr bool kStarts = kFrom128;
    static constexpr float kZero = kFrom128 ? 128 : 0;
    static TOKEND_INLINE A Zero() { return _mm256_setzero_si256(); }
    static TOKEND_INLINE A Step(A sum, C codes, C quad) {
      return _mm256_dpbusd_avx_epi32(sum, codes, quad);
    }
    static TOKEND_INLINE I Total(A sum) { return sum; }
  };
  using NibbleDot = Dpbusd<false>;
  using SmallDot = Dpbusd<false>;
  using OffsetDot = Dpbusd<true>;
};

}  // namespace

constexpr MatmulKernels kMatmulAvxVnni = MakeMatmulKernels<AvxVnni>();

}  // namespace tokend::cpu
