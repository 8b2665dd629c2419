#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "cuda_kernels/kernels/matmul_launch.h"

namespace tokend::cuda {
namespace {

constexpr int kRowBytes = kBlockCols * 2;
constexpr int kMaxStages = 4;
constexpr int kNormSumBytes = 4 * kMatmulWarps * static_cast<int>(sizeof(float));
// Of weights, wanted beside the slot in use: with 16 warps what an H200 needs, 30 KB.
// Beyond it large slots are worth more than many: one costs instructions as four blocks do.
constexpr int kWarpBytesUnderWay = 2048;
constexpr int kReservedShared = 1024;  // of each block, by the system

int PowerOfTwoShift(int value) {
  int shift = 0;
  while (1 << shift < value) ++shift;
  return shift;
}

// What does not depend on how much shared memory there is.
MatmulLaunch Begin(const Matmul& matmul) {
  MatmulLaunch launch;
  launch.params.matmul = matmul;
  for (int s = 0; s < matmul.segment_count; ++s) {
    const PackedMatrix& matrix = matmul.segments[s].matrix;
    SegmentPlan& plan = launch.params.plans[s];
    plan.tiles = Tiles(matrix);
    plan.records = Records(matrix.format, matrix.cols);
    plan.chunks = Chunks(plan.records);
    const PackedLayout layout = LayoutOf(matrix.format);
    plan.tile_bytes = int64_t{plan.records} * layout.record_bytes();
    plan.record_shift = PowerOfTwoShift(layout.record_blocks);
    plan.header_bytes = layout.header_bytes;
    plan.block_bytes = layout.block_bytes;
  }
  return launch;
}

// Sizes slots of `tiles` tiles and `rows` rows for at most `max_blocks` blocks and about
// `weight_bytes` of weights. Returns the ring's bytes for one slot.
void SizeSlots(int tiles, int rows, int max_blocks, int weight_bytes, MatmulParams& params) {
  const int planes = IsPair(params.matmul) ? 2 : 1;
  int weights = 0;
  int row_bytes = 0;
  for (int s = 0; s < params.matmul.segment_count; ++s) {
    SegmentPlan& plan = params.plans[s];
    plan.slot_blocks = max_blocks;
    while (plan.slot_blocks > 1 && plan.slot_blocks * plan.block_bytes * tiles > weight_bytes) {
      plan.slot_blocks /= 2;
    }
    plan.tile_slot_bytes = plan.header_bytes + plan.slot_blocks * plan.block_bytes;
    weights = std::max(weights, tiles * plan.tile_slot_bytes);
    row_bytes = std::max(row_bytes, plan.slot_blocks * planes * rows * kRowBytes);
  }
  params.slot_rows_at = weights;
  params.slot_bytes = weights + row_bytes;
}

// Part of a multiprocessor that a block may fill, and how many blocks then share it.
struct Share {
  int64_t bytes;
  int blocks;
};

// With dependent launch two kernels' blocks share a multiprocessor. 16 warps of one
// hide the latency of shared memory and products, so two blocks are tried first.
std::vector<Share> Shares(int resident_blocks, const DeviceInfo& device) {
  const int kernels = device.dependent_launch ? 2 : 1;
  std::vector<Share> shares;
  for (int blocks = std::min(2 * kernels, resident_blocks); blocks >= 1; blocks /= 2) {
    const int64_t part = device.shared_bytes_per_multiprocessor / blocks - kReservedShared;
    shares.push_back(
        {std::min(part, device.shared_bytes_per_block), std::max(1, blocks / kernels)});
  }
  return shares;
}

// The largest slots, then the most, that fit `shared_bytes` and leave `under_way` bytes of
// weights under way beside the slot in use. False if none do.
bool SizeRing(int rows, int under_way, int64_t shared_bytes, MatmulLaunch& launch) {
  MatmulParams& params = launch.params;
  for (int blocks = kMaxSlotBlocks; blocks >= 1; blocks /= 2) {
    SizeSlots(1, rows, blocks, kSlotWeightBytes, params);
    for (params.stages = kMaxStages; params.stages >= 2; --params.stages) {
      launch.shared_bytes =
          static_cast<size_t>(params.ring_at) + static_cast<size_t>(kMatmulWarps * params.stages) *
                                                    static_cast<size_t>(params.slot_bytes);
      if ((params.stages - 1) * params.slot_rows_at >= under_way &&
          static_cast<int64_t>(launch.shared_bytes) <= shared_bytes) {
        return true;
      }
    }
  }
  return false;
}

int SetCount(const SegmentPlan& plan) {
  const int set_tiles = kMatmulWarps / plan.chunks;
  return (plan.tiles + set_tiles - 1) / set_tiles;
}

// Deals sets so that no multiprocessor has more than `each`, if it takes every
// `multiprocessors`-th block: its first block `each` divided by `resident`, rounded up,
// a second one what is left. False if not all blocks would run at once.
bool DealSets(int multiprocessors, int resident, int each, MatmulLaunch& launch) {
  MatmulParams& params = launch.params;
  const int large = (each + resident - 1) / resident;
  const int small = resident == 1 ? large : each - large;
  int blocks = 0;
  for (int s = 0; s < params.matmul.segment_count; ++s) {
    SegmentPlan& plan = params.plans[s];
    int left = SetCount(plan);
    plan.first_block = blocks;
    plan.large_sets = large;
    plan.small_sets = small;
    plan.large_blocks = std::min(std::max(0, multiprocessors - blocks), (left + large - 1) / large);
    left -= std::min(left, plan.large_blocks * large);
    if (left > 0 && small == 0) return false;
    plan.blocks = plan.large_blocks + (left > 0 ? (left + small - 1) / small : 0);
    blocks += plan.blocks;
  }
  launch.grid_x = static_cast<unsigned>(blocks);
  return blocks <= std::max(multiprocessors * resident, params.matmul.segment_count);
}

// With the fewest sets for a multiprocessor.
void DealSets(int multiprocessors, int resident, MatmulLaunch& launch) {
  int total = 0;
  for (int s = 0; s < launch.params.matmul.segment_count; ++s) {
    total += SetCount(launch.params.plans[s]);
  }
  int each = std::max(1, (total + multiprocessors - 1) / multiprocessors);
  while (!DealSets(multiprocessors, resident, each, launch)) ++each;
}

}  // namespace

absl::StatusOr<MatmulLaunch> PlanMatmulDecode(const Matmul& matmul, int resident_blocks,
                                              const DeviceInfo& device) {
  MatmulLaunch launch = Begin(matmul);
  MatmulParams& params = launch.params;
  const bool normed = matmul.input.residual != nullptr;
  const int planes = IsPair(matmul) ? 2 : 1;
  params.row_shift = PowerOfTwoShift(matmul.rows);
  params.normed_at = kNormSumBytes;
  params.partial_at = params.normed_at;
  if (normed) {
    params.partial_at +=
        ColumnBlocks(matmul.segments[0].matrix.cols) * planes * matmul.rows * kRowBytes;
  }
  // At most kMatmulWarps chunks of kMatmulWarps / chunks groups.
  params.partial_bytes =
      kMatmulWarps * matmul.rows * kTileOutputs * static_cast<int>(sizeof(float));
  params.ring_at = params.partial_at + 2 * params.partial_bytes;
  const int slot_rows = normed ? 0 : matmul.rows;
  const std::vector<Share> shares = Shares(resident_blocks, device);
  for (const Share& share : shares) {
    for (const int under_way : {kWarpBytesUnderWay, kWarpBytesUnderWay / 2, 0}) {
      if (under_way == 0 && &share != &shares.back()) continue;
      if (!SizeRing(slot_rows, under_way, share.bytes, launch)) continue;
      DealSets(device.multiprocessors, share.blocks, launch);
      return launch;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("matmul: ", matmul.rows, " rows of ", matmul.segments[0].matrix.cols,
                   " inputs do not fit into a block's shared memory of ",
                   device.shared_bytes_per_block, " bytes"));
}

absl::StatusOr<MatmulLaunch> PlanMatmulWide(const Matmul& matmul, int block_tiles, int block_rows,
                                            int total_bytes, const DeviceInfo& device) {
  MatmulLaunch launch = Begin(matmul);
  MatmulParams& params = launch.params;
  params.ring_at = total_bytes;
  params.row_shift = PowerOfTwoShift(block_rows);
  TOKEND_CHECK(1 << params.row_shift == block_rows);
  int first = 0;
  for (int s = 0; s < matmul.segment_count; ++s) {
    SegmentPlan& plan = params.plans[s];
    plan.first_block = first;
    plan.blocks = (plan.tiles + block_tiles - 1) / block_tiles;
    first += plan.blocks;
  }
  launch.grid_x = static_cast<unsigned>((matmul.rows + block_rows - 1) / block_rows);
  launch.grid_y = static_cast<unsigned>(first);
  for (int blocks = 2; blocks >= 1; --blocks) {
    SizeSlots(block_tiles, block_rows, blocks, 1 << 30, params);
    for (params.stages = kMaxStages; params.stages >= 2; --params.stages) {
      launch.shared_bytes =
          static_cast<size_t>(total_bytes) +
          static_cast<size_t>(params.stages) * static_cast<size_t>(params.slot_bytes);
      if (params.stages == 2 && blocks > 1) continue;
      if (static_cast<int64_t>(launch.shared_bytes) <= device.shared_bytes_per_block) return launch;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("matmul: a block needs ", launch.shared_bytes,
                                                 " bytes of shared memory, the device has ",
                                                 device.shared_bytes_per_block));
}

}  // namespace tokend::cuda
