#ifndef TOKEND_CUDA_KERNELS_KERNELS_HALF_ROWS_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_HALF_ROWS_CUH_

#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/kernels/half_rows.h"

namespace tokend::cuda {

struct HalfPair {
  __half hi;
  __half lo;
};

// See HalfRows. `saturations`, if given, counts values that do not fit.
TOKEND_DEVICE HalfPair SplitHalf(float value, unsigned* saturations) {
  HalfPair pair;
  pair.hi = __float2half_rn(value);
  pair.lo = __float2half_rn(value - __half2float(pair.hi));
  if ((__half_as_ushort(pair.hi) & 0x7fff) == 0x7c00) {  // Inf
    pair.hi = __ushort_as_half(static_cast<unsigned short>(__half_as_ushort(pair.hi) - 1));
    pair.lo = __ushort_as_half(0);
    if (saturations != nullptr) atomicAdd(saturations, 1u);
  }
  return pair;
}

// Stores `value` at `column` of row `row`.
TOKEND_DEVICE void StoreHalf(const HalfRows& rows, int64_t row, int column, float value,
                             unsigned* saturations) {
  const HalfPair pair = SplitHalf(value, saturations);
  rows.hi[row * rows.stride + column] = pair.hi;
  if (rows.lo != nullptr) rows.lo[row * rows.stride + column] = pair.lo;
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_HALF_ROWS_CUH_
