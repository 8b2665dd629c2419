#ifndef TOKEND_CUDA_KERNELS_KERNELS_MATMUL_EPILOGUE_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_MATMUL_EPILOGUE_CUH_

#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/kernels/activation.cuh"
#include "cuda_kernels/kernels/half_rows.cuh"
#include "cuda_kernels/kernels/matmul.h"

namespace tokend::cuda {

TOKEND_DEVICE float WithBias(float y, const float* bias, int output) {
  return bias == nullptr ? y : y + bias[output];
}

// y of a matrix that is not gated. `output` < the matrix's outputs.
TOKEND_DEVICE void Finish(const Matmul& matmul, const MatmulSegment& segment, int row, int output,
                          float y) {
  const MatmulOutput& to = matmul.output;
  const int column = segment.output_offset + output;
  const float biased = WithBias(y, segment.bias, output);
  if (to.epilogue == MatmulEpilogue::kActivate) {
    StoreHalf(to.half, row, column, Activate(to.activation, biased), matmul.saturations);
    return;
  }
  float* out = to.out + row * to.out_stride + column;
  const float scaled = to.scale * biased;
  if (to.epilogue == MatmulEpilogue::kAdd) {
    *out += scaled;
  } else if (to.soft_cap > 0) {
    *out = to.soft_cap * tanhf(scaled / to.soft_cap);
  } else {
    *out = scaled;
  }
}

TOKEND_DEVICE void FinishGated(const Matmul& matmul, const MatmulSegment& segment, int row,
                               int output, float gate, float up) {
  const float activated = Activate(matmul.output.activation, WithBias(gate, segment.bias, output));
  StoreHalf(matmul.output.half, row, segment.output_offset + output,
            activated * WithBias(up, segment.up_bias, output), matmul.saturations);
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_MATMUL_EPILOGUE_CUH_
