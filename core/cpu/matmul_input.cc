#include "core/cpu/matmul_input.h"

#include "core/base/status_macros.h"

namespace tokend::cpu {

absl::StatusOr<MatmulInput> MatmulInput::Create(base::Activations wanted,
                                                absl::Span<const PackedMatrix* const> readers,
                                                int64_t max_rows, Isa isa) {
  MatmulInput input;
  input.wanted_ = wanted;
  for (const PackedMatrix* reader : readers) {
    const base::Activations mode = reader->ActivationsFor(wanted);
    ActivationBlocks* blocks = mode == wanted ? &input.wanted_blocks_ : &input.f32_blocks_;
    if (blocks->max_rows() > 0) continue;
    TOKEND_ASSIGN_OR_RETURN(*blocks, ActivationBlocks::Create(mode, max_rows, reader->cols(), isa));
  }
  return input;
}

void MatmulInput::SetRow(int64_t row, const float* x) {
  if (wanted_blocks_.max_rows() > 0) wanted_blocks_.SetRow(row, x);
  if (f32_blocks_.max_rows() > 0) f32_blocks_.SetRow(row, x);
}

const ActivationBlocks& MatmulInput::For(const PackedMatrix& matrix) const {
  return matrix.ActivationsFor(wanted_) == wanted_ ? wanted_blocks_ : f32_blocks_;
}

int64_t MatmulInput::size_bytes() const {
  return wanted_blocks_.size_bytes() + f32_blocks_.size_bytes();
}

}  // namespace tokend::cpu
