#define TOKEND_SIMD_NEON 1
#include "core/cpu/attention_kernels_impl.h"
#include "core/cpu/vector_kernels_impl.h"
