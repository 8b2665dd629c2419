#include "core/base/check.h"
#include "core/cpu/attention_kernels.h"
#include "core/cpu/vector_kernels.h"

namespace tokend::cpu {

// One pair per file rows_*.cc of this build.
#define TOKEND_DECLARE(name)                       \
  namespace name {                                 \
  extern const AttentionKernels kAttentionKernels; \
  extern const VectorKernels kVectorKernels;       \
  }
TOKEND_DECLARE(plain)
#if defined(__x86_64__)
TOKEND_DECLARE(avx2)
TOKEND_DECLARE(avx512)
#elif defined(__aarch64__)
TOKEND_DECLARE(neon)
#endif
#undef TOKEND_DECLARE

namespace {

struct Kernels {
  const AttentionKernels& attention;
  const VectorKernels& vector;
};

Kernels Get(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512Vnni:
      return {avx512::kAttentionKernels, avx512::kVectorKernels};
    case Isa::kAvxVnni:
    case Isa::kAvx2:
      return {avx2::kAttentionKernels, avx2::kVectorKernels};
#elif defined(__aarch64__)
    case Isa::kNeonDot:
      return {neon::kAttentionKernels, neon::kVectorKernels};
#endif
    default:
      TOKEND_CHECK(isa == Isa::kPlain);
      return {plain::kAttentionKernels, plain::kVectorKernels};
  }
}

}  // namespace

const AttentionKernels& GetAttentionKernels(Isa isa) { return Get(isa).attention; }
const VectorKernels& GetVectorKernels(Isa isa) { return Get(isa).vector; }

}  // namespace tokend::cpu
