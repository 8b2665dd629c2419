#ifndef TOKEND_CUDA_KERNELS_KERNELS_EMBEDDING_H_
#define TOKEND_CUDA_KERNELS_KERNELS_EMBEDDING_H_

#include <driver_types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "cuda_kernels/kernels/matmul.h"

namespace tokend::cuda {

// x[r] = scale * table[token of r] + positions[row_positions[r]], in f32, each operation
// rounded. A quantised weight has the value of ops::DequantizeRowRef.
struct EmbeddingParams {
  int rows = 0;
  // [rows], on the device; -1 - j: drawn[j], or 0 if that is negative.
  const int32_t* tokens = nullptr;
  const int32_t* drawn = nullptr;
  // [vocabulary, width]: the very copy that a tied output head multiplies by.
  PackedMatrix table;
  float scale = 1;
  PackedMatrix positions;                  // [context, width]; data nullptr: none
  const int64_t* row_positions = nullptr;  // [rows], on the device; read if there are positions
  float* x = nullptr;                      // [rows, x_stride]
  int64_t x_stride = 0;                    // elements
};

// INVALID_ARGUMENT: gated tables, or of different cols.
absl::Status Embed(const EmbeddingParams& params, cudaStream_t stream);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_EMBEDDING_H_
