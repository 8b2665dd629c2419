// Weight matrices in the layout that the matmul kernels read.
//
// A matrix is cut into panels of 32 outputs (the last one padded with zeros). A
// panel is a run of blocks of 32 inputs (the last one padded with zeros, which
// only F32, F16 and BF16 need). The codes of a block lie as
// [quad of inputs][32 outputs][4 inputs]; scales stand directly behind them.
// All values are f16 unless said otherwise; sizes are bytes for 32 x 32 weights:
//
//   Q4_0   512 nibbles (low: inputs 0-15, high: 16-31), 32 d
//   Q4_1   512 nibbles, 32 d, 32 m
//   Q5_0   1024 codes u8 (code + 112), 32 d
//   Q5_1   1024 codes u8, 32 d, 32 m
//   Q8_0   1024 codes u8 (code + 128), 32 d
//   Q4_K   per 256 inputs: 32 d, 32 dmin, then 8 x (512 nibbles, 32 u8 scales, 32 u8 minima)
//   Q5_K   per 256 inputs: 32 d, 32 dmin, then 8 x (1024 codes u8, 32 u8 scales, 32 u8 minima)
//   Q6_K   per 256 inputs: 32 d, then 8 x (1024 codes u8 (code + 96), 2 x 32 s8 scales)
//   F32, F16, BF16   [32 inputs][32 outputs], values as in the file
//
// Nothing is rounded: every weight keeps the exact value that the file gives it.
#ifndef TOKEND_CORE_CPU_PACKED_MATRIX_H_
#define TOKEND_CORE_CPU_PACKED_MATRIX_H_

#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/ops/plan.h"

namespace tokend::cpu {

inline constexpr int kPanelOutputs = 32;
inline constexpr int kBlockInputs = 32;

// A view of packed weights; does not own its memory. Copyable. Once packed it is
// constant and may be read from any thread.
class PackedMatrix {
 public:
  PackedMatrix() = default;  // absent: no rows

  // Memory that `source` takes once packed; a multiple of 64.
  static int64_t PackedBytes(const ops::Matrix& source);

  // For `source`, in PackedBytes(source) bytes at `memory`, which must be 64-byte
  // aligned. The weights are not there before PackPanels has run for all panels.
  PackedMatrix(const ops::Matrix& source, std::byte* memory);

  // Fills panels [begin, end) from `source`, the same matrix as at construction.
  // Calls for different panels may run at the same time.
  void PackPanels(const ops::Matrix& source, int64_t begin, int64_t end);

  base::WeightType type() const { return type_; }
  int64_t rows() const { return rows_; }  // outputs
  int64_t cols() const { return cols_; }  // inputs
  int64_t panels() const { return (rows_ + kPanelOutputs - 1) / kPanelOutputs; }
  int64_t blocks() const { return (cols_ + kBlockInputs - 1) / kBlockInputs; }
  int64_t panel_bytes() const { return panel_bytes_; }
  const std::byte* panel(int64_t index) const { return data_ + index * panel_bytes_; }

  // How its input must be held when the operator asked for `wanted`: F32, F16 and
  // BF16 weights are always multiplied in f32.
  base::Activations ActivationsFor(base::Activations wanted) const;

 private:
  base::WeightType type_ = base::WeightType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t panel_bytes_ = 0;
  std::byte* data_ = nullptr;  // [panels][panel_bytes]
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_PACKED_MATRIX_H_
