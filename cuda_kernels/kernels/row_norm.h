#ifndef TOKEND_CUDA_KERNELS_KERNELS_ROW_NORM_H_
#define TOKEND_CUDA_KERNELS_KERNELS_ROW_NORM_H_

#include <cstdint>

namespace tokend::cuda {

enum class NormKind : int32_t { kRms, kLayer };

// out = (x - mean) / sqrt(variance + epsilon) * weight + bias; RMS: mean 0, and the
// mean square in place of the variance.
struct RowNorm {
  NormKind kind = NormKind::kRms;
  const float* weight = nullptr;  // [width], on the device
  const float* bias = nullptr;    // [width] or nullptr: none
  float epsilon = 0;
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_ROW_NORM_H_
