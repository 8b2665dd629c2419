// y[row][output] = sum over k of W[output][k] x[row][k], with what comes before and
// after it in a transformer block.
//
// A row's result has the same bits whatever rows stand beside it and whichever kernel
// computed it: K is cut into 1 to 8 chunks that depend on K and the format alone, sums
// within a chunk run in the order of K, and chunks are added in index order, in f32.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_MATMUL_H_
#define TOKEND_CUDA_KERNELS_KERNELS_MATMUL_H_

#include <driver_types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "core/ops/plan.h"
#include "cuda_kernels/kernels/half_rows.h"
#include "cuda_kernels/kernels/row_norm.h"
#include "cuda_kernels/runtime/device.h"

namespace tokend::cuda {

enum class PackedFormat : int32_t {
  kF16,
  kF16Pair,  // hi and lo, for F32 weights in mode f32
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

// A weight matrix in the device's own layout (see backend/packed_weights.h). A view.
struct PackedMatrix {
  PackedFormat format = PackedFormat::kF16;
  // Two matrices of one shape, gate and up, in one: every tile of 16 rows holds 8 of the
  // gate and then the same 8 of up. `outputs` counts those of one.
  bool gated = false;
  int outputs = 0;                      // W's rows
  int cols = 0;                         // K, a multiple of 8
  const unsigned char* data = nullptr;  // on the device, 128-byte aligned
};

// The rows to multiply: `half`, or the norm of `residual`.
struct MatmulInput {
  // x [rows, cols] as it is. lo is nullptr in mode f16.
  HalfRows half;
  // Else x = norm(residual), rounded as HalfRows says. At most kMaxNormedRows rows; cols
  // a multiple of 4.
  const float* residual = nullptr;  // [rows, residual_stride], 16-byte aligned
  int64_t residual_stride = 0;      // elements, a multiple of 4
  RowNorm norm;
  bool pair = false;  // round to hi + lo (mode f32)
};
inline constexpr int kMaxNormedRows = 4;

// One matrix of a launch. All have the same cols; formats may differ.
struct MatmulSegment {
  PackedMatrix matrix;
  const float* bias = nullptr;     // [outputs] or nullptr; gated: of the gate
  const float* up_bias = nullptr;  // [outputs] or nullptr
  int output_offset = 0;           // where its first output goes in a row of the result
};
inline constexpr int kMaxMatmulSegments = 4;

enum class MatmulEpilogue : int32_t {
  kStore,     // out = cap(scale * (y + bias))
  kAdd,       // out += scale * (y + bias), in place
  kActivate,  // half = activation(y + bias)
  kGate,      // half = activation(gate + bias) * (up + up_bias); gated matrices
};

struct MatmulOutput {
  MatmulEpilogue epilogue = MatmulEpilogue::kStore;
  float* out = nullptr;    // kStore, kAdd: [rows, out_stride]
  int64_t out_stride = 0;  // elements
  float scale = 1;
  float soft_cap = 0;  // kStore: cap(z) = soft_cap * tanh(z / soft_cap); 0: z
  ops::Activation activation = ops::Activation::kSilu;
  HalfRows half;  // kActivate, kGate
};

struct Matmul {
  int rows = 0;  // 1 and more
  MatmulInput input;
  int segment_count = 1;
  MatmulSegment segments[kMaxMatmulSegments];
  MatmulOutput output;
  unsigned* saturations = nullptr;  // counts values that did not fit f16; on the device
};

// Input and output do not overlap; bits do not depend on `device`. INVALID_ARGUMENT: a shape that
// no kernel takes.
absl::Status RunMatmul(const Matmul& matmul, const DeviceInfo& device, cudaStream_t stream);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_MATMUL_H_
