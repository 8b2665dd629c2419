// How RunMatmul cuts the work; what the matmul kernels have in common.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_MATMUL_LAUNCH_H_
#define TOKEND_CUDA_KERNELS_KERNELS_MATMUL_LAUNCH_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_kernels/kernels/matmul.h"
#include "cuda_kernels/kernels/packed_format.h"

namespace tokend::cuda {

inline constexpr int kMatmulWarps = 8;  // of a block

// How one matrix is cut. A set is what a block finishes at a time.
struct SegmentPlan {
  int first_block = 0;  // of the grid's x (decode) or y (wide)
  int blocks = 0;
  int large_blocks = 0;  // of them, the first: these take large_sets, the others small_sets
  int large_sets = 0;    // decode alone
  int small_sets = 0;
  int tiles = 0;
  int records = 0;  // of a tile
  int chunks = 0;
  int64_t tile_bytes = 0;
  int record_shift = 0;  // 1 << record_shift blocks make a record
  int header_bytes = 0;  // of a record
  int block_bytes = 0;
  int slot_blocks = 0;      // blocks of 32 k that a ring slot holds; divides a record's
  int tile_slot_bytes = 0;  // of one tile in a slot: header, then blocks
};

// What a matmul kernel is given. Byte offsets are within shared memory.
struct MatmulParams {
  Matmul matmul;
  SegmentPlan plans[kMaxMatmulSegments];
  int stages = 0;         // slots of a ring, 2 to 4
  int slot_bytes = 0;     // weights, then rows
  int slot_rows_at = 0;   // where a slot's rows begin
  int normed_at = 0;      // normed rows (decode)
  int partial_at = 0;     // two buffers of chunk sums (decode)
  int partial_bytes = 0;  // of one
  int ring_at = 0;
  int row_shift = 0;  // rows of a slot, rounded up to a power of two, as a shift
};

struct SetRange {
  int begin = 0;
  int end = 0;
};

// What the segment's block `index` finishes, of a decode kernel.
constexpr SetRange SetsOf(const SegmentPlan& plan, int index) {
  const int set_tiles = kMatmulWarps / plan.chunks;
  const int sets = (plan.tiles + set_tiles - 1) / set_tiles;
  const int large = index < plan.large_blocks ? index : plan.large_blocks;
  SetRange range;
  range.begin = large * plan.large_sets + (index - large) * plan.small_sets;
  range.end = range.begin + (index < plan.large_blocks ? plan.large_sets : plan.small_sets);
  if (range.end > sets) range.end = sets;
  return range;
}

struct MatmulLaunch {
  MatmulParams params;
  unsigned grid_x = 1;
  unsigned grid_y = 1;
  size_t shared_bytes = 0;
};

// For a kernel of which `resident_blocks` blocks fit a multiprocessor's registers.
// INVALID_ARGUMENT if no block of this device holds what it needs.
absl::StatusOr<MatmulLaunch> PlanMatmulDecode(const Matmul& matmul, int resident_blocks,
                                              const DeviceInfo& device);

// Of weights in a slot of a decode ring, unless one block is more; enough that a copy's
// latency is spread over many bytes.
inline constexpr int kSlotWeightBytes = 2400;
// With a header.
inline constexpr int kMaxSlotWeightBytes = 2560;
inline constexpr int kMaxSlotBlocks = 8;

// For a wide kernel whose blocks take `block_tiles` tiles and `block_rows` rows, with
// `total_bytes` at the start of shared memory for totals.
absl::StatusOr<MatmulLaunch> PlanMatmulWide(const Matmul& matmul, int block_tiles, int block_rows,
                                            int total_bytes, const DeviceInfo& device);

// Pick a kernel and run it; what RunMatmul has checked. More rows than kMaxDecodeRows
// (in pairs: kMaxDecodeRowsPair) are for the wide kernels.
absl::Status RunMatmulDecode(const Matmul& matmul, const DeviceInfo& device, cudaStream_t stream);
absl::Status RunMatmulDecodePair(const Matmul& matmul, const DeviceInfo& device,
                                 cudaStream_t stream);
absl::Status RunMatmulWide(const Matmul& matmul, const DeviceInfo& device, cudaStream_t stream);
absl::Status RunMatmulWidePair(const Matmul& matmul, const DeviceInfo& device, cudaStream_t stream);
inline constexpr int kMaxDecodeRows = 32;
inline constexpr int kMaxDecodeRowsPair = 16;

// Blocks of 32 k of a matrix of `cols`.
constexpr int ColumnBlocks(int cols) { return (cols + kBlockCols - 1) / kBlockCols; }

constexpr bool IsPair(const Matmul& matmul) {
  return matmul.input.residual != nullptr ? matmul.input.pair : matmul.input.half.lo != nullptr;
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_MATMUL_LAUNCH_H_
