#ifndef TOKEND_CORE_OPS_DEQUANTIZE_H_
#define TOKEND_CORE_OPS_DEQUANTIZE_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "core/base/dtype.h"
#include "core/ops/plan.h"

namespace tokend::ops {

// Widens a row of weights to f32. `row` holds out.size() / block_elements
// blocks, unaligned; out.size() is a multiple of the type's block_elements.
//
// Formulas (the GGUF specification's block formats; d, m, dmin are the block's
// f16 values, q unsigned codes, s and t a sub-block's 6-bit scale and minimum):
//   Q4_0  (q - 8) d        Q4_1  q d + m
//   Q5_0  (q - 16) d       Q5_1  q d + m
//   Q8_0  q d, q signed    Q6_K  (q - 32) (d s), s signed 8 bits per 16
//   Q4_K, Q5_K  q (d s) - dmin t, per 32
// Products are exact in f32; a sum is rounded once, so every implementation
// that rounds after each operation gives the same bits.
void DequantizeRowRef(base::WeightType type, const std::byte* row, absl::Span<float> out);

// Bytes of a row of `matrix`.
int64_t RowBytes(const Matrix& matrix);

// Rows [first, first + rows) of `matrix`, in place.
Matrix RowRange(const Matrix& matrix, int64_t first, int64_t rows);

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_DEQUANTIZE_H_
