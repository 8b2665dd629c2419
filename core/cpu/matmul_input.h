#ifndef TOKEND_CORE_CPU_MATMUL_INPUT_H_
#define TOKEND_CORE_CPU_MATMUL_INPUT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/dtype.h"
#include "core/cpu/activation_blocks.h"
#include "core/cpu/packed_matrix.h"

namespace tokend::cpu {

// Rows that several matrices multiply, held in each form that one of them reads:
// quantised, f32 or both. Different rows may be set from different threads.
class MatmulInput {
 public:
  MatmulInput() = default;
  // `readers` have the same number of columns and are not empty.
  // RESOURCE_EXHAUSTED if there is no memory.
  static absl::StatusOr<MatmulInput> Create(base::Activations wanted,
                                            absl::Span<const PackedMatrix* const> readers,
                                            int64_t max_rows, Isa isa);

  void SetRow(int64_t row, const float* x);
  const ActivationBlocks& For(const PackedMatrix& matrix) const;
  int64_t size_bytes() const;

 private:
  base::Activations wanted_ = base::Activations::kF32;
  ActivationBlocks wanted_blocks_;  // without rows: no reader takes that form
  ActivationBlocks f32_blocks_;     // likewise
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_MATMUL_INPUT_H_
