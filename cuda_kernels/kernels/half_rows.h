// Activations between matmuls: rows of f16, or of pairs hi + lo of f16.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_HALF_ROWS_H_
#define TOKEND_CUDA_KERNELS_KERNELS_HALF_ROWS_H_

#include <cuda_fp16.h>

#include <cstdint>

namespace tokend::cuda {

// A value v is held as hi = f16(v) and, where there is `lo`, lo = f16(v - hi), both
// to nearest. Beyond 65504 (and Inf) hi is +-65504, lo is 0, and the value is counted;
// NaN stays NaN.
struct HalfRows {
  __half* hi = nullptr;  // [rows, stride], 16-byte aligned, on the device
  __half* lo = nullptr;  // the same, or nullptr: mode f16
  int64_t stride = 0;    // elements, a multiple of 8
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_HALF_ROWS_H_
