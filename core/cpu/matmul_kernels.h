// What each instruction set's translation unit offers to matmul.cc.
#ifndef TOKEND_CORE_CPU_MATMUL_KERNELS_H_
#define TOKEND_CORE_CPU_MATMUL_KERNELS_H_

#include <cstdint>

#include "core/base/dtype.h"
#include "core/cpu/activation_blocks.h"
#include "core/cpu/cpu_features.h"

namespace tokend::cpu {

// One panel against some rows.
struct PanelTask {
  const uint8_t* panel;
  int64_t blocks;
  const uint8_t* rows;  // activation blocks of the first row
  int64_t row_bytes;    // from one row to the next
  int64_t row_count;
  float* out;  // first row, first output of the panel
  int64_t out_stride;
  int outputs;        // that exist, 1 to 32
  const float* bias;  // [outputs] or nullptr
  bool accumulate;
};

using PanelFunction = void (*)(const PanelTask&);

struct MatmulKernels {
  // nullptr: F32, F16 and BF16 have no int modes.
  PanelFunction (*find)(base::WeightType type, base::Activations mode);
  // `count` values, the last block padded with zeros.
  void (*quantize8)(const float* x, int64_t count, ActivationBlock8* out);
  void (*quantize16)(const float* x, int64_t count, ActivationBlock16* out);
};

extern const MatmulKernels kMatmulPlain;
#if defined(__x86_64__)
extern const MatmulKernels kMatmulAvx2;
extern const MatmulKernels kMatmulAvxVnni;
extern const MatmulKernels kMatmulAvx512Vnni;
#elif defined(__aarch64__)
extern const MatmulKernels kMatmulNeonDot;
#endif

// `isa` must be among SupportedIsas().
const MatmulKernels& GetMatmulKernels(Isa isa);

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_MATMUL_KERNELS_H_
