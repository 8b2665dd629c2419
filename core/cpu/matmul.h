// y = W x for packed weights and quantised or f32 inputs.
//
// Per output and row, with blocks b of 32 inputs in ascending order, every
// operation in f32 with one rounding and fma() fused:
//
//   int8, int16:  y = 0
//                 y = fma(float(i_b), dw_b * dx_b, y)        i_b: exact int32 dot product
//                 y = fma(m_b, dx_b * sum_b, y)              types with minima
//     dw_b is d, or d * scale for K types (exact in f32); Q6_K takes inputs 0-15
//     and 16-31 of a block as two steps with scales of their own. float(i_b) is
//     rounded to nearest even when i_b needs more than 24 bits.
//   f32:          t = 0;  t = fma(w_k, x_k, t) for the block's k in order;  y = y + t
//     w_k = fma(dw_b, code, m_b), the file's own value.
//
// then y = y + bias, then out = y or out = out + y. So a row's result depends on
// that row and the weights alone: not on the number of rows, on tiling, or on the
// instruction set.
#ifndef TOKEND_CORE_CPU_MATMUL_H_
#define TOKEND_CORE_CPU_MATMUL_H_

#include <cstdint>

#include "core/cpu/activation_blocks.h"
#include "core/cpu/cpu_features.h"
#include "core/cpu/packed_matrix.h"

namespace tokend::cpu {

struct MatmulEpilogue {
  const float* bias = nullptr;  // [rows of the matrix], or none
  bool accumulate = false;      // out += y instead of out = y
};

// Writes out[r * out_stride + o] for rows r in [row_begin, row_end) of `x` and the
// outputs o of panels [panel_begin, panel_end), nothing else. `x.mode()` must be
// kF32 for F32, F16 and BF16 weights and x.cols() the matrix's cols(). No state,
// no threads, no allocation: calls for different outputs or rows may run at once.
void MatmulPanels(Isa isa, const PackedMatrix& matrix, const ActivationBlocks& x, int64_t row_begin,
                  int64_t row_end, int64_t panel_begin, int64_t panel_end, float* out,
                  int64_t out_stride, const MatmulEpilogue& epilogue = {});

// Asks the memory system for the first `bytes` of a panel.
void PrefetchPanel(const PackedMatrix& matrix, int64_t panel, int64_t bytes);

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_MATMUL_H_
