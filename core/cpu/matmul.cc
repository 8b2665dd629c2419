#include "core/cpu/matmul.h"

#include "core/base/check.h"
#include "core/cpu/matmul_kernels.h"

namespace tokend::cpu {

const MatmulKernels& GetMatmulKernels(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return kMatmulAvx2;
    case Isa::kAvxVnni:
      return kMatmulAvxVnni;
    case Isa::kAvx512Vnni:
      return kMatmulAvx512Vnni;
#elif defined(__aarch64__)
    case Isa::kNeonDot:
      return kMatmulNeonDot;
#endif
    default:
      return kMatmulPlain;
  }
}

void MatmulPanels(Isa isa, const PackedMatrix& matrix, const ActivationBlocks& x, int64_t row_begin,
                  int64_t row_end, int64_t panel_begin, int64_t panel_end, float* out,
                  int64_t out_stride, const MatmulEpilogue& epilogue) {
  TOKEND_CHECK(0 <= row_begin && row_end <= x.max_rows() && x.cols() == matrix.cols());
  TOKEND_CHECK(0 <= panel_begin && panel_end <= matrix.panels());
  const PanelFunction run = GetMatmulKernels(isa).find(matrix.type(), x.mode());
  TOKEND_CHECK(run != nullptr);
  if (row_begin >= row_end) return;
  PanelTask task;
  task.blocks = matrix.blocks();
  task.rows = reinterpret_cast<const uint8_t*>(x.row(row_begin));
  task.row_bytes = x.row_bytes();
  task.row_count = row_end - row_begin;
  task.out_stride = out_stride;
  task.accumulate = epilogue.accumulate;
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const int64_t first = p * kPanelOutputs;
    const int64_t left = matrix.rows() - first;
    task.panel = reinterpret_cast<const uint8_t*>(matrix.panel(p));
    task.out = out + row_begin * out_stride + first;
    task.outputs = left < kPanelOutputs ? static_cast<int>(left) : kPanelOutputs;
    task.bias = epilogue.bias == nullptr ? nullptr : epilogue.bias + first;
    run(task);
  }
}

void PrefetchPanel(const PackedMatrix& matrix, int64_t panel, int64_t bytes) {
  const std::byte* from = matrix.panel(panel);
  const int64_t end = bytes < matrix.panel_bytes() ? bytes : matrix.panel_bytes();
  for (int64_t i = 0; i < end; i += 64) __builtin_prefetch(from + i);
}

}  // namespace tokend::cpu
