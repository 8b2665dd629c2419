// Many rows: what counts is that the tensor cores stay busy. A block takes 128 outputs
// and 16 kRowTiles rows, its warps 32 outputs and half of the rows each; weights and rows
// pass through a ring that the block shares. Each warp goes through K in order, chunk by
// chunk, so that a row has the bits that the decode kernels give it. Totals of chunks lie
// in shared memory, where they are needed eight times: registers are for accumulators.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_MATMUL_WIDE_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_MATMUL_WIDE_CUH_

#include "cuda_kernels/device/dependent_launch.cuh"
#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/device/shared_memory.cuh"
#include "cuda_kernels/kernels/matmul_epilogue.cuh"
#include "cuda_kernels/kernels/matmul_input.cuh"
#include "cuda_kernels/kernels/weight_blocks.cuh"

namespace tokend::cuda {

inline constexpr int kWideThreads = kMatmulWarps * kWarpLanes;
inline constexpr int kWideWarpTiles = 2;  // of 16 outputs
inline constexpr int kWideRowWarps = 2;   // that share their outputs
inline constexpr int kWideTiles = kMatmulWarps / kWideRowWarps * kWideWarpTiles;

// kRowTiles: of 8 rows, of a warp.
template <int kRowTiles>
inline constexpr int kWideRows = kWideRowWarps* kRowTiles * 8;
template <int kRowTiles>
using WideAccumulators = float[kWideWarpTiles][kRowTiles][4];

// The block's ring.
template <int kRowTiles, bool kPair>
class WideRing {
 public:
  TOKEND_DEVICE WideRing(const MatmulParams& params, int segment)
      : params_(params), plan_(params.plans[segment]) {
    const PackedMatrix& matrix = params.matmul.segments[segment].matrix;
    data_ = matrix.data;
    cols_ = matrix.cols;
    blocks_ = plan_.records << plan_.record_shift;
    slots_ = (blocks_ + plan_.slot_blocks - 1) / plan_.slot_blocks;
    first_tile_ = (static_cast<int>(blockIdx.y) - plan_.first_block) * kWideTiles;
    ring_ = SharedArray<unsigned char>(params.ring_at, params.stages * params.slot_bytes);
  }

  TOKEND_DEVICE int slots() const { return slots_; }
  TOKEND_DEVICE int first_tile() const { return first_tile_; }
  TOKEND_DEVICE unsigned char* Slot(int slot) const {
    return ring_ + slot % params_.stages * params_.slot_bytes;
  }
  TOKEND_DEVICE int FirstBlock(int slot) const { return slot * plan_.slot_blocks; }
  TOKEND_DEVICE int Count(int slot) const {
    return min(plan_.slot_blocks, blocks_ - slot * plan_.slot_blocks);
  }

  // Tiles beyond the last one are that one again, and not used.
  TOKEND_DEVICE void CopySlotWeights(int slot) const {
    if (slot >= slots_) return;
    for (int t = Warp(); t < kWideTiles; t += kMatmulWarps) {
      CopyWeights(data_, plan_, min(first_tile_ + t, plan_.tiles - 1), FirstBlock(slot),
                  Count(slot), Slot(slot) + t * plan_.tile_slot_bytes, Lane(), kWarpLanes);
    }
  }
  TOKEND_DEVICE void CopySlotRows(int slot) const {
    if (slot >= slots_) return;
    const Matmul& matmul = params_.matmul;
    CopyRows<kPair>(matmul.input.half, static_cast<int>(blockIdx.x) * kWideRows<kRowTiles>,
                    matmul.rows, cols_, kWideRows<kRowTiles>, params_.row_shift, FirstBlock(slot),
                    Count(slot), Slot(slot) + params_.slot_rows_at, static_cast<int>(threadIdx.x),
                    kWideThreads);
  }

 private:
  const MatmulParams& params_;
  const SegmentPlan& plan_;
  const unsigned char* data_;
  int cols_;
  int blocks_;
  int slots_;
  int first_tile_;
  unsigned char* ring_;
};

// Calls `run` with the kind as a constant.
template <bool kPair, typename Run>
TOKEND_DEVICE void ForKind(PackedFormat format, const Run& run) {
  switch (format) {
    case PackedFormat::kF16:
      return run(std::integral_constant<BlockKind, BlockKind::kHalf>());
    case PackedFormat::kF16Pair:
      if constexpr (kPair) run(std::integral_constant<BlockKind, BlockKind::kHalfPair>());
      return;
    case PackedFormat::kQ4_0:
    case PackedFormat::kQ5_0:
    case PackedFormat::kQ8_0:
      return run(std::integral_constant<BlockKind, BlockKind::kScaled>());
    case PackedFormat::kQ4_1:
    case PackedFormat::kQ5_1:
    case PackedFormat::kQ4_K:
    case PackedFormat::kQ5_K:
      return run(std::integral_constant<BlockKind, BlockKind::kScaledMinimum>());
    case PackedFormat::kQ6_K:
      return run(std::integral_constant<BlockKind, BlockKind::kSixteens>());
  }
}

template <PackedFormat kFormat>
TOKEND_DEVICE BlockWeights<KindOf<kFormat>()> LoadBlockAt(const unsigned char* block,
                                                          uint2 header) {
  return LoadBlock<kFormat>(PointersOf<kFormat>(block), ScalesOf<kFormat>(header));
}

// Unpacking is a small part of the work on a block here: formats of a kind share its code.
template <BlockKind kKind>
TOKEND_DEVICE BlockWeights<kKind> LoadAnyBlock(PackedFormat format, const unsigned char* block,
                                               uint2 header) {
  if constexpr (kKind == BlockKind::kHalf) {
    return LoadBlockAt<PackedFormat::kF16>(block, header);
  } else if constexpr (kKind == BlockKind::kHalfPair) {
    return LoadBlockAt<PackedFormat::kF16Pair>(block, header);
  } else if constexpr (kKind == BlockKind::kSixteens) {
    return LoadBlockAt<PackedFormat::kQ6_K>(block, header);
  } else if constexpr (kKind == BlockKind::kScaled) {
    if (format == PackedFormat::kQ4_0) return LoadBlockAt<PackedFormat::kQ4_0>(block, header);
    if (format == PackedFormat::kQ5_0) return LoadBlockAt<PackedFormat::kQ5_0>(block, header);
    return LoadBlockAt<PackedFormat::kQ8_0>(block, header);
  } else {
    if (format == PackedFormat::kQ4_1) return LoadBlockAt<PackedFormat::kQ4_1>(block, header);
    if (format == PackedFormat::kQ5_1) return LoadBlockAt<PackedFormat::kQ5_1>(block, header);
    if (format == PackedFormat::kQ4_K) return LoadBlockAt<PackedFormat::kQ4_K>(block, header);
    return LoadBlockAt<PackedFormat::kQ5_K>(block, header);
  }
}

template <BlockKind kKind>
TOKEND_DEVICE uint2 LoadAnyHeader(const unsigned char* header) {
  if constexpr (kKind == BlockKind::kSixteens) return LoadHeader<PackedFormat::kQ6_K>(header);
  return LoadHeader<PackedFormat::kQ4_K>(header);
}

// One block of 32 k: `block` of the warp's first tile, `rows` of this lane's first row.
template <BlockKind kKind, int kRowTiles, bool kPair>
TOKEND_DEVICE void AddWideBlock(PackedFormat format, const unsigned char* block,
                                int tile_slot_bytes, const uint2 (&headers)[kWideWarpTiles],
                                const unsigned char* rows,
                                WideAccumulators<kRowTiles>& accumulators) {
  BlockWeights<kKind> weights[kWideWarpTiles];
#pragma unroll
  for (int t = 0; t < kWideWarpTiles; ++t) {
    weights[t] = LoadAnyBlock<kKind>(format, block + t * tile_slot_bytes, headers[t]);
  }
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    const BlockRows<kPair> x = LoadRows<kKind, kPair>(rows + n * 8 * kRowBlockBytes,
                                                      kWideRows<kRowTiles> * kRowBlockBytes);
    float2 sums = {};
    if constexpr (kKind == BlockKind::kScaledMinimum) sums = SumRows<kPair>(x);
#pragma unroll
    for (int t = 0; t < kWideWarpTiles; ++t) {
      AddBlock<kKind, kPair>(weights[t], x, sums, accumulators[t][n]);
    }
  }
}

// This thread's totals: element i at [i * threads].
TOKEND_DEVICE float* WideTotals(int count) {
  return SharedArray<float>(0, count * kWideThreads) + threadIdx.x;
}

// Ends a chunk: adds its sums to the totals, of which the first chunk's are the start.
template <int kRowTiles>
TOKEND_DEVICE void EndChunk(bool first, float* totals, WideAccumulators<kRowTiles>& accumulators) {
#pragma unroll
  for (int t = 0; t < kWideWarpTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& total = totals[((t * kRowTiles + n) * 4 + e) * kWideThreads];
        const float sum = accumulators[t][n][e];
        total = first ? sum : total + sum;
        accumulators[t][n][e] = 0;
      }
    }
  }
}

template <int kRowTiles>
TOKEND_DEVICE void FinishWide(const Matmul& matmul, const MatmulSegment& segment, int first_tile,
                              int first_row, const float* totals) {
  const int g = Lane() / 4;
  const int t2 = Lane() % 4 * 2;
  const int outputs = segment.matrix.outputs;
  for (int t = 0; t < kWideWarpTiles; ++t) {
    for (int n = 0; n < kRowTiles; ++n) {
      for (int e = 0; e < 2; ++e) {
        const int row = first_row + n * 8 + t2 + e;
        if (row >= matmul.rows) continue;
        const float* total = totals + ((t * kRowTiles + n) * 4 + e) * kWideThreads;
        const float low = total[0];
        const float high = total[2 * kWideThreads];
        if (segment.matrix.gated) {
          const int output = (first_tile + t) * 8 + g;
          if (output < outputs) FinishGated(matmul, segment, row, output, low, high);
          continue;
        }
        const int output = (first_tile + t) * kTileOutputs + g;
        if (output < outputs) Finish(matmul, segment, row, output, low);
        if (output + 8 < outputs) Finish(matmul, segment, row, output + 8, high);
      }
    }
  }
}

template <BlockKind kKind, int kRowTiles, bool kPair>
TOKEND_DEVICE void MultiplyWide(const MatmulParams& params, int segment,
                                const WideRing<kRowTiles, kPair>& ring) {
  const PackedFormat format = params.matmul.segments[segment].matrix.format;
  const PackedLayout layout = LayoutOf(format);
  const SegmentPlan& plan = params.plans[segment];
  const int warp_tile = Warp() / kWideRowWarps * kWideWarpTiles;
  const int warp_row = Warp() % kWideRowWarps * kRowTiles * 8;
  uint2 headers[kWideWarpTiles] = {};
  WideAccumulators<kRowTiles> accumulators = {};
  float* totals = WideTotals(kWideWarpTiles * kRowTiles * 4);
  int chunk = 0;
  int block = 0;
  int chunk_end = ChunkBegin(plan.records, plan.chunks, 1) * layout.record_blocks;
  for (int s = 0; s < ring.slots(); ++s) {
    WaitForRing(params.stages);
    __syncthreads();
    ring.CopySlotWeights(s + params.stages - 1);
    ring.CopySlotRows(s + params.stages - 1);
    CommitCopies();
    const unsigned char* tiles = ring.Slot(s) + warp_tile * plan.tile_slot_bytes;
    const unsigned char* rows = ring.Slot(s) + params.slot_rows_at +
                                (warp_row + Lane() / 4) * kRowBlockBytes + RowOffset<kKind>();
    if (layout.record_blocks > 1 && block % layout.record_blocks == 0) {
#pragma unroll
      for (int t = 0; t < kWideWarpTiles; ++t) {
        headers[t] = LoadAnyHeader<kKind>(tiles + t * plan.tile_slot_bytes);
      }
    }
    const int count = ring.Count(s);
    for (int b = 0; b < count; ++b) {
      AddWideBlock<kKind, kRowTiles, kPair>(
          format, tiles + layout.header_bytes + b * layout.block_bytes, plan.tile_slot_bytes,
          headers, rows + b * (kPair ? 2 : 1) * kWideRows<kRowTiles> * kRowBlockBytes,
          accumulators);
      if (++block < chunk_end) continue;
      EndChunk<kRowTiles>(chunk == 0, totals, accumulators);
      ++chunk;
      chunk_end = ChunkBegin(plan.records, plan.chunks, chunk + 1) * layout.record_blocks;
    }
  }
  const Matmul& matmul = params.matmul;
  FinishWide<kRowTiles>(matmul, matmul.segments[segment], ring.first_tile() + warp_tile,
                        static_cast<int>(blockIdx.x) * kWideRows<kRowTiles> + warp_row, totals);
}

// Grid: [row tiles, tiles of outputs of all segments].
template <int kRowTiles, bool kPair>
__global__ void __launch_bounds__(kWideThreads, 1)
    MatmulWideKernel(const __grid_constant__ MatmulParams params) {
  const Matmul& matmul = params.matmul;
  int segment = 0;
  while (segment + 1 < matmul.segment_count &&
         static_cast<int>(blockIdx.y) >= params.plans[segment + 1].first_block) {
    ++segment;
  }
  const WideRing<kRowTiles, kPair> ring(params, segment);
  AllowNextKernel();
  for (int s = 0; s + 1 < params.stages; ++s) ring.CopySlotWeights(s);
  WaitForPreviousKernel();
  for (int s = 0; s + 1 < params.stages; ++s) {
    ring.CopySlotRows(s);
    CommitCopies();
  }
  ForKind<kPair>(matmul.segments[segment].matrix.format, [&](auto kind) {
    MultiplyWide<decltype(kind)::value, kRowTiles, kPair>(params, segment, ring);
  });
}

template <int kRowTiles, bool kPair>
absl::Status RunWideKernel(const Matmul& matmul, const DeviceInfo& device, cudaStream_t stream) {
  const absl::StatusOr<MatmulLaunch> launch = PlanMatmulWide(
      matmul, kWideTiles, kWideRows<kRowTiles>,
      kWideWarpTiles * kRowTiles * 4 * kWideThreads * static_cast<int>(sizeof(float)), device);
  if (!launch.ok()) return launch.status();
  LaunchDims dims;
  dims.grid_x = launch->grid_x;
  dims.grid_y = launch->grid_y;
  dims.threads = kWideThreads;
  dims.shared_bytes = launch->shared_bytes;
  dims.dependent = device.dependent_launch;
  return Launch("MatmulWide", MatmulWideKernel<kRowTiles, kPair>, dims, launch->params, stream);
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_MATMUL_WIDE_CUH_
