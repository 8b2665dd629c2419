#ifndef TOKEND_CUDA_KERNELS_KERNELS_NORM_H_
#define TOKEND_CUDA_KERNELS_KERNELS_NORM_H_

#include <driver_types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "cuda_kernels/kernels/half_rows.h"
#include "cuda_kernels/kernels/row_norm.h"

namespace tokend::cuda {

// For each of `rows` rows, with r = row_index[row] or row:
//   x[r] += scale * post(y[r])     if there is y; the sum is what x holds afterwards
//   out[row] = norm(x[r])
// A norm without weight passes its input through. With the same bits as the norm in
// the prologue of RunMatmul. width and strides are multiples of 4, rows 16-byte
// aligned; else INVALID_ARGUMENT.
struct NormRowsParams {
  int rows = 0;
  int width = 0;
  float* x = nullptr;  // [rows, x_stride]
  int64_t x_stride = 0;
  const int32_t* row_index = nullptr;  // [rows], on the device; nullptr: every row
  const float* y = nullptr;            // [rows, y_stride] or nullptr
  int64_t y_stride = 0;
  RowNorm post;
  float scale = 1;
  RowNorm norm;
  HalfRows out;                     // hi nullptr: x alone is updated
  unsigned* saturations = nullptr;  // counts values that did not fit f16; on the device
};

absl::Status NormRows(const NormRowsParams& params, cudaStream_t stream);

// rows[r] = norm(rows[r]) in place, in f32.
struct NormInPlaceParams {
  int rows = 0;
  int width = 0;
  float* values = nullptr;  // [rows, stride]
  int64_t stride = 0;
  RowNorm norm;
};

absl::Status NormInPlace(const NormInPlaceParams& params, cudaStream_t stream);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_NORM_H_
