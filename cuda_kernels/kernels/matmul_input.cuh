// How weights and rows come into shared memory.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_MATMUL_INPUT_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_MATMUL_INPUT_CUH_

#include <type_traits>

#include "cuda_kernels/device/cp_async.cuh"
#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/kernels/half_rows.cuh"
#include "cuda_kernels/kernels/matmul_launch.h"
#include "cuda_kernels/kernels/row_norm.cuh"

namespace tokend::cuda {

inline constexpr int kRowBlockBytes = kBlockCols * 2;  // 32 k of a row
inline constexpr int kCopyBytes = 16;
inline constexpr int kCopyUnits = kRowBlockBytes / kCopyBytes;

// A block's number within its record.
TOKEND_DEVICE int WithinRecord(const SegmentPlan& plan, int block) {
  return block & ((1 << plan.record_shift) - 1);
}

// Where the record that holds `block` begins in a tile.
TOKEND_DEVICE int64_t RecordOffset(const SegmentPlan& plan, int block) {
  return static_cast<int64_t>(block >> plan.record_shift) *
         (plan.header_bytes + (plan.block_bytes << plan.record_shift));
}

// Copies blocks [block, block + count) of a tile, all of one record where a record has
// a header, to `slot`: the header, if they begin a record, then the blocks. Shared
// among `threads` threads.
TOKEND_DEVICE void CopyWeights(const unsigned char* data, const SegmentPlan& plan, int tile,
                               int block, int count, unsigned char* slot, int thread, int threads) {
  const int within = WithinRecord(plan, block);
  const unsigned char* from = data + tile * plan.tile_bytes + RecordOffset(plan, block);
  int bytes = count * plan.block_bytes;
  if (within == 0) {
    bytes += plan.header_bytes;
  } else {
    from += plan.header_bytes + within * plan.block_bytes;
    slot += plan.header_bytes;
  }
  for (int i = thread * kCopyBytes; i < bytes; i += threads * kCopyBytes) {
    CopyAsync16(slot + i, from + i);
  }
}

// Copies blocks [block, block + count) of rows [first_row, first_row + slot_rows) to
// `slot` as [block][plane][slot_rows][32]; what lies beyond `rows` or cols is zero.
// `row_shift`: slot_rows <= 1 << row_shift.
template <bool kPair>
TOKEND_DEVICE void CopyRows(const HalfRows& half, int first_row, int rows, int cols, int slot_rows,
                            int row_shift, int block, int count, unsigned char* slot, int thread,
                            int threads) {
  constexpr int kPlanes = kPair ? 2 : 1;
  const int units = (count * kPlanes * kCopyUnits) << row_shift;
  for (int i = thread; i < units; i += threads) {
    const int unit = i % kCopyUnits;
    const int row = i / kCopyUnits & ((1 << row_shift) - 1);
    if (row >= slot_rows) continue;
    const int plane_block = i / kCopyUnits >> row_shift;
    const int column = (block + plane_block / kPlanes) * kBlockCols + unit * 8;
    const bool valid = first_row + row < rows && column < cols;
    const __half* from = plane_block % kPlanes == 0 ? half.hi : half.lo;
    if (valid) from += (first_row + row) * half.stride + column;
    CopyAsync16(slot + (plane_block * slot_rows + row) * kRowBlockBytes + unit * kCopyBytes, from,
                valid);
  }
}

// The norm's rows as [block][plane][rows][32] f16. The whole block of 256 threads calls
// it; `sums` is 32 floats. Ends with a barrier.
template <bool kPair>
TOKEND_DEVICE void NormPrologue(const Matmul& matmul, int cols, unsigned char* normed,
                                float* sums) {
  constexpr int kPlanes = kPair ? 2 : 1;
  constexpr int kRowsAtOnce = kMatmulWarps / kNormWarps;
  const MatmulInput& input = matmul.input;
  const int virtual_lane = static_cast<int>(threadIdx.x) % kNormLanes;
  // Each block norms the same rows: one counts.
  unsigned* counter = blockIdx.x == 0 ? matmul.saturations : nullptr;
  for (int first = 0; first < matmul.rows; first += kRowsAtOnce) {
    const int row = first + static_cast<int>(threadIdx.x) / kNormLanes;
    const float* x = row < matmul.rows ? input.residual + row * input.residual_stride : nullptr;
    const RowStatistics statistics = NormStatistics(input.norm.kind, x, cols, input.norm.epsilon,
                                                    sums + first / kRowsAtOnce * 2 * kMatmulWarps);
    if (x == nullptr) continue;
    for (int i = 4 * virtual_lane; i < ColumnBlocks(cols) * kBlockCols; i += 4 * kNormLanes) {
      unsigned char* to = normed + (i / kBlockCols * kPlanes * matmul.rows + row) * kRowBlockBytes +
                          i % kBlockCols * 2;
      HalfPair pairs[4] = {};
      if (i < cols) {
        const float4 quad = *reinterpret_cast<const float4*>(x + i);
        const float values[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          pairs[e] = SplitHalf(NormedElement(input.norm, statistics, values[e], i + e), counter);
        }
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        reinterpret_cast<__half*>(to)[e] = pairs[e].hi;
        if (kPair) {
          reinterpret_cast<__half*>(to + matmul.rows * kRowBlockBytes)[e] = pairs[e].lo;
        }
      }
    }
  }
  __syncthreads();
}

TOKEND_DEVICE void WaitForRing(int stages) {
  switch (stages) {
    case 2:
      return WaitForCopies<0>();
    case 3:
      return WaitForCopies<1>();
    default:
      return WaitForCopies<2>();
  }
}

// Calls `run` with the format as a constant.
template <bool kPair, typename Run>
TOKEND_DEVICE void ForFormat(PackedFormat format, const Run& run) {
  switch (format) {
    case PackedFormat::kF16:
      return run(std::integral_constant<PackedFormat, PackedFormat::kF16>());
    case PackedFormat::kF16Pair:
      if constexpr (kPair) {
        run(std::integral_constant<PackedFormat, PackedFormat::kF16Pair>());
      }
      return;
    case PackedFormat::kQ4_0:
      return run(std::integral_constant<PackedFormat, PackedFormat::kQ4_0>());
    case PackedFormat::kQ4_1:
      return run(std::integral_constant<PackedFormat, PackedFormat::kQ4_1>());
    case PackedFormat::kQ5_0:
      return run(std::integral_constant<PackedFormat, PackedFormat::kQ5_0>());
    case PackedFormat::kQ5_1:
      return run(std::integral_constant<PackedFormat, PackedFormat::kQ5_1>());
    case PackedFormat::kQ8_0:
      return run(std::integral_constant<PackedFormat, PackedFormat::kQ8_0>());
    case PackedFormat::kQ4_K:
      return run(std::integral_constant<PackedFormat, PackedFormat::kQ4_K>());
    case PackedFormat::kQ5_K:
      return run(std::integral_constant<PackedFormat, PackedFormat::kQ5_K>());
    case PackedFormat::kQ6_K:
      return run(std::integral_constant<PackedFormat, PackedFormat::kQ6_K>());
  }
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_MATMUL_INPUT_CUH_
