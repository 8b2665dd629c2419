// Inputs of a matmul in the form that its kernels read.
//
// Per 32 consecutive values of a row (the last block padded with zeros):
//   int8   x ~ d q,             q in [-127, 127],     d = max|x| / 127
//   int16  x ~ d (128 h + l),   |128 h + l| <= 16256, d = max|x| / 16256,
//          l in [-64, 63]
//   f32    x itself
// Rounding is to nearest, ties to even, of x * (1 / d). A block whose largest
// magnitude is below 2^-100 is held as zeros; one with a NaN or an infinity makes
// every product NaN.
#ifndef TOKEND_CORE_CPU_ACTIVATION_BLOCKS_H_
#define TOKEND_CORE_CPU_ACTIVATION_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/cpu/cpu_features.h"
#include "core/cpu/huge_pages.h"

namespace tokend::cpu {

// What the kernels read, by mode. Broadcast loads want the offsets precomputed:
// weight codes are unsigned, so the sum over (code - 8) q starts at -8 sum(q).
struct alignas(64) ActivationBlock8 {
  int8_t q[32];
  float d;
  float d_sum;               // d * sum(q)
  int32_t start8;            // -8 * sum(q)
  int32_t start128;          // -128 * sum(q)
  int32_t start128_half[2];  // -128 * sum(q) of inputs 0-15 and 16-31
  int32_t unused[2];
};

struct alignas(32) ActivationBlock16 {  // v = 128 * high + low
  int8_t high[32];
  int8_t low[32];
  float d;
  float d_sum;               // d * sum(v)
  int32_t start8;            // -8 * sum(v), to be added to the whole sum
  int32_t start128;          // -sum(v), to be added to the high sum before its shift by 7
  int32_t start128_half[2];  // the same for inputs 0-15 and 16-31
  int32_t unused[2];
};

// Rows of one width in one mode. Owns its memory. Different rows may be written
// from different threads; readers need the usual ordering.
class ActivationBlocks {
 public:
  ActivationBlocks() = default;
  // RESOURCE_EXHAUSTED if there is no memory.
  static absl::StatusOr<ActivationBlocks> Create(base::Activations mode, int64_t max_rows,
                                                 int64_t cols, Isa isa);

  // Holds x[0, cols) as row `row`. The result depends on x alone.
  void SetRow(int64_t row, const float* x);

  // Copies rows [begin, end) of `from`, which has the same mode and width.
  void CopyRows(const ActivationBlocks& from, int64_t begin, int64_t end);

  base::Activations mode() const { return mode_; }
  int64_t max_rows() const { return max_rows_; }
  int64_t cols() const { return cols_; }
  int64_t row_bytes() const { return row_bytes_; }  // a multiple of 64
  const std::byte* row(int64_t index) const { return buffer_.data() + index * row_bytes_; }
  int64_t size_bytes() const { return buffer_.size(); }

 private:
  base::Activations mode_ = base::Activations::kF32;
  Isa isa_ = Isa::kPlain;
  int64_t max_rows_ = 0;
  int64_t cols_ = 0;
  int64_t row_bytes_ = 0;
  HugeBuffer buffer_;  // [max_rows][blocks] of ActivationBlock8, ActivationBlock16 or 32 f32
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_ACTIVATION_BLOCKS_H_
