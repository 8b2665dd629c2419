#ifndef TOKEND_CUDA_KERNELS_KERNELS_ACTIVATION_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_ACTIVATION_CUH_

#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/kernels/matmul.h"

namespace tokend::cuda {

TOKEND_DEVICE float Activate(ops::Activation activation, float x) {
  switch (activation) {
    case ops::Activation::kSilu:
      return x / (1.0f + expf(-x));
    case ops::Activation::kGeluTanh: {
      // sqrt(2 / pi) (Hendrycks and Gimpel 2016).
      const float inner = 0.7978845608028654f * fmaf(0.044715f * x * x, x, x);
      return 0.5f * x * (1.0f + tanhf(inner));
    }
    case ops::Activation::kGelu:
      return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
  }
  return x;
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_ACTIVATION_CUH_
