#include "core/cpu/activation_blocks.h"

#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/cpu/matmul_kernels.h"
#include "core/cpu/packed_matrix.h"

namespace tokend::cpu {
namespace {

using base::Activations;

int64_t BlockBytes(Activations mode) {
  switch (mode) {
    case Activations::kF32:
      return kBlockInputs * static_cast<int64_t>(sizeof(float));
    case Activations::kInt16:
      return sizeof(ActivationBlock16);
    case Activations::kInt8:
      return sizeof(ActivationBlock8);
    case Activations::kF16:
      break;
  }
  return 0;
}

}  // namespace

absl::StatusOr<ActivationBlocks> ActivationBlocks::Create(Activations mode, int64_t max_rows,
                                                          int64_t cols, Isa isa) {
  TOKEND_CHECK(max_rows >= 0 && cols >= 0);
  ActivationBlocks result;
  result.mode_ = mode;
  result.isa_ = isa;
  result.max_rows_ = max_rows;
  result.cols_ = cols;
  const int64_t blocks = (cols + kBlockInputs - 1) / kBlockInputs;
  result.row_bytes_ = (blocks * BlockBytes(mode) + 63) / 64 * 64;
  TOKEND_ASSIGN_OR_RETURN(result.buffer_, HugeBuffer::Allocate(max_rows * result.row_bytes_));
  return result;
}

void ActivationBlocks::SetRow(int64_t row, const float* x) {
  TOKEND_CHECK(0 <= row && row < max_rows_);
  std::byte* at = buffer_.data() + row * row_bytes_;
  switch (mode_) {
    case Activations::kF32:
      // The padding is zero from the start.
      std::memcpy(at, x, static_cast<size_t>(cols_) * sizeof(float));
      return;
    case Activations::kInt16:
      return GetMatmulKernels(isa_).quantize16(x, cols_, reinterpret_cast<ActivationBlock16*>(at));
    case Activations::kInt8:
      return GetMatmulKernels(isa_).quantize8(x, cols_, reinterpret_cast<ActivationBlock8*>(at));
    case Activations::kF16:
      break;
  }
}

void ActivationBlocks::CopyRows(const ActivationBlocks& from, int64_t begin, int64_t end) {
  TOKEND_CHECK(from.mode_ == mode_ && from.cols_ == cols_);
  TOKEND_CHECK(0 <= begin && begin <= end && end <= max_rows_ && end <= from.max_rows_);
  if (begin == end) return;
  std::memcpy(buffer_.data() + begin * row_bytes_, from.row(begin),
              static_cast<size_t>((end - begin) * row_bytes_));
}

}  // namespace tokend::cpu
