// Few rows: what counts is that weights keep coming. A warp takes one chunk of K of
// kTiles tiles at a time, through a ring of its own in shared memory that runs on from
// one set of tiles to the next; the block adds the chunks.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_MATMUL_DECODE_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_MATMUL_DECODE_CUH_

#include "cuda_kernels/device/dependent_launch.cuh"
#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/device/shared_memory.cuh"
#include "cuda_kernels/kernels/matmul_epilogue.cuh"
#include "cuda_kernels/kernels/matmul_input.cuh"
#include "cuda_kernels/kernels/weight_blocks.cuh"

namespace tokend::cuda {

inline constexpr int kDecodeThreads = kMatmulWarps * kWarpLanes;

// A warp's part of the block's work.
struct DecodeWork {
  int chunk;
  int group;        // of warps with one chunk each; those left over have no slots
  int groups;       // of a block, a power of two
  int first_block;  // of the chunk, of 32 k
  int blocks;
  int slots;
  int set_begin;  // of tiles
  int set_end;
};

template <int kTiles>
TOKEND_DEVICE DecodeWork WorkOf(const SegmentPlan& plan, int record_blocks) {
  DecodeWork work;
  work.chunk = Warp() % plan.chunks;
  work.group = Warp() / plan.chunks;
  work.groups = kMatmulWarps / plan.chunks;
  const int begin = ChunkBegin(plan.records, plan.chunks, work.chunk);
  const int end = ChunkBegin(plan.records, plan.chunks, work.chunk + 1);
  work.first_block = begin * record_blocks;
  work.blocks = (end - begin) * record_blocks;
  work.slots =
      work.group < work.groups ? (work.blocks + plan.slot_blocks - 1) / plan.slot_blocks : 0;
  const int set_tiles = work.groups * kTiles;
  const int sets = (plan.tiles + set_tiles - 1) / set_tiles;
  const int index = static_cast<int>(blockIdx.x) - plan.first_block;
  work.set_begin = static_cast<int>(static_cast<int64_t>(sets) * index / plan.blocks);
  work.set_end = static_cast<int>(static_cast<int64_t>(sets) * (index + 1) / plan.blocks);
  return work;
}

// One warp's ring: what comes next, and where it goes.
template <int kTiles, bool kPair>
class DecodeRing {
 public:
  TOKEND_DEVICE DecodeRing(const MatmulParams& params, int segment, const DecodeWork& work)
      : params_(params), plan_(params.plans[segment]), work_(work) {
    const PackedMatrix& matrix = params.matmul.segments[segment].matrix;
    reader_ = ReaderOf(matrix, plan_);
    cols_ = matrix.cols;
    ring_ = SharedArray<unsigned char>(params.ring_at + Warp() * params.stages * params.slot_bytes,
                                       params.stages * params.slot_bytes);
    set_ = work.set_begin;
  }

  TOKEND_DEVICE unsigned char* Slot(int stage) const { return ring_ + stage * params_.slot_bytes; }
  TOKEND_DEVICE int Count(int slot) const {
    return min(plan_.slot_blocks, work_.blocks - slot * plan_.slot_blocks);
  }
  TOKEND_DEVICE int FirstBlock(int slot) const {
    return work_.first_block + slot * plan_.slot_blocks;
  }
  // The last set's tiles beyond the last one are that one again, and not used.
  TOKEND_DEVICE int Tile(int set, int t) const {
    return min((set * work_.groups + work_.group) * kTiles + t, plan_.tiles - 1);
  }

  // Copies what comes next into `stage`: weights, rows or both. Does not advance.
  TOKEND_DEVICE void CopySlotWeights(int stage) const {
    if (set_ >= work_.set_end || work_.slots == 0) return;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      CopyWeights(reader_, Tile(set_, t), FirstBlock(slot_), Count(slot_),
                  Slot(stage) + t * plan_.tile_slot_bytes, Lane(), kWarpLanes);
    }
  }
  TOKEND_DEVICE void CopySlotRows(int stage) const {
    const Matmul& matmul = params_.matmul;
    if (matmul.input.residual != nullptr || set_ >= work_.set_end || work_.slots == 0) return;
    CopyRows<kPair>(matmul.input.half, 0, matmul.rows, cols_, matmul.rows, params_.row_shift,
                    FirstBlock(slot_), Count(slot_), Slot(stage) + params_.slot_rows_at, Lane(),
                    kWarpLanes);
  }
  TOKEND_DEVICE void Advance() {
    if (++slot_ < work_.slots) return;
    slot_ = 0;
    ++set_;
  }
  TOKEND_DEVICE void Rewind() {
    slot_ = 0;
    set_ = work_.set_begin;
  }

 private:
  const MatmulParams& params_;
  const SegmentPlan& plan_;
  const DecodeWork& work_;
  MatrixReader reader_;
  int cols_;
  unsigned char* ring_;
  int set_;
  int slot_ = 0;
};

template <int kRowTiles, int kTiles>
struct DecodeSums {
  RecordScales records[kTiles];
  float accumulators[kTiles][kRowTiles][4];
};

// Adds the blocks of one slot, of which `block` is the first.
template <PackedFormat kFormat, int kRowTiles, int kTiles, bool kPair>
TOKEND_DEVICE void AddSlot(const MatmulParams& params, int tile_slot_bytes,
                           const unsigned char* slot, const unsigned char* rows, int block,
                           int count, DecodeSums<kRowTiles, kTiles>& sums) {
  constexpr PackedLayout kLayout = LayoutOf(kFormat);
  constexpr BlockKind kKind = KindOf<kFormat>();
  const int row_count = params.matmul.rows;
  const int plane_bytes = row_count * kRowBlockBytes;
  const int block_stride = (kPair ? 2 : 1) * plane_bytes;
  // A row beyond the last one is that one again: its results are not stored.
  const unsigned char* lane_rows[kRowTiles];
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    lane_rows[n] = rows + min(n * 8 + Lane() / 4, row_count - 1) * kRowBlockBytes;
  }
  if (FormatTraits<kFormat>::kSuper && block % kLayout.record_blocks == 0) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      sums.records[t] = LoadRecord<kFormat>(slot + t * tile_slot_bytes);
    }
  }
#pragma unroll 2
  for (int b = 0; b < count; ++b) {
    BlockWeights<kKind> weights[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      weights[t] = LoadBlock<kFormat>(
          slot + t * tile_slot_bytes + kLayout.header_bytes + b * kLayout.block_bytes,
          sums.records[t]);
    }
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const BlockRows<kPair> x =
          LoadRows<kKind, kPair>(lane_rows[n] + b * block_stride, plane_bytes);
      float2 row_sums = {};
      if constexpr (kKind == BlockKind::kScaledMinimum) row_sums = SumRows<kPair>(x);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        AddBlock<kKind, kPair>(weights[t], x, row_sums, sums.accumulators[t][n]);
      }
    }
  }
}

// Leaves a chunk's sums as [row][output of the set] at `sums`.
template <int kRowTiles, int kTiles>
TOKEND_DEVICE void StoreChunk(const float (&accumulators)[kTiles][kRowTiles][4], int rows,
                              int set_outputs, int first_output, float* sums) {
  const int g = Lane() / 4;
  const int t2 = Lane() % 4 * 2;
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = n * 8 + t2 + e % 2;
      if (row >= rows) continue;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        sums[row * set_outputs + first_output + t * kTileOutputs + g + e / 2 * 8] =
            accumulators[t][n][e];
      }
    }
  }
}

// Adds the chunks in index order and finishes the set's outputs, of which the first
// tile is `first_tile`. All threads of the block.
TOKEND_DEVICE void FinishSet(const Matmul& matmul, const MatmulSegment& segment, int chunks,
                             int set_outputs, int first_tile, const float* sums) {
  const int chunk_stride = matmul.rows * set_outputs;
  const bool gated = segment.matrix.gated;
  // 16 outputs and more, a power of two; gated: pairs.
  const int shift = __popc((gated ? set_outputs / 2 : set_outputs) - 1);
  for (int i = threadIdx.x; i < matmul.rows << shift; i += kDecodeThreads) {
    const int row = i >> shift;
    const int at = i & ((1 << shift) - 1);
    const int first = gated ? at / 8 * kTileOutputs + at % 8 : at;
    const float* y = sums + row * set_outputs + first;
    const int output = gated ? first_tile * 8 + at : first_tile * kTileOutputs + at;
    if (output >= segment.matrix.outputs) continue;
    float total = y[0];
    float up = gated ? y[8] : 0.0f;
    for (int c = 1; c < chunks; ++c) {
      total += y[c * chunk_stride];
      if (gated) up += y[c * chunk_stride + 8];
    }
    if (gated) {
      FinishGated(matmul, segment, row, output, total, up);
    } else {
      Finish(matmul, segment, row, output, total);
    }
  }
}

template <int kRowTiles, int kTiles, bool kPair>
TOKEND_DEVICE void MultiplySets(const MatmulParams& params, int segment, const DecodeWork& work,
                                DecodeRing<kTiles, kPair>& ring, const unsigned char* normed) {
  constexpr int kPlanes = kPair ? 2 : 1;
  const Matmul& matmul = params.matmul;
  const SegmentPlan& plan = params.plans[segment];
  const int set_outputs = work.groups * kTiles * kTileOutputs;
  const PackedFormat format = matmul.segments[segment].matrix.format;
  DecodeSums<kRowTiles, kTiles> chunk;
  int stage = 0;
  for (int set = work.set_begin; set < work.set_end; ++set) {
    chunk = {};
    for (int s = 0; s < work.slots; ++s) {
      WaitForRing(params.stages);
      __syncwarp();
      // The slot before is read: it takes what comes next.
      const int refill = stage == 0 ? params.stages - 1 : stage - 1;
      ring.CopySlotWeights(refill);
      ring.CopySlotRows(refill);
      CommitCopies();
      ring.Advance();
      const unsigned char* slot = ring.Slot(stage);
      const int block = ring.FirstBlock(s);
      const unsigned char* rows = matmul.input.residual != nullptr
                                      ? normed + block * kPlanes * matmul.rows * kRowBlockBytes
                                      : slot + params.slot_rows_at;
      ForFormat<kPair>(format, [&](auto constant) {
        AddSlot<decltype(constant)::value, kRowTiles, kTiles, kPair>(
            params, plan.tile_slot_bytes, slot, rows, block, ring.Count(s), chunk);
      });
      stage = stage + 1 == params.stages ? 0 : stage + 1;
    }
    // Two buffers: all have left one before anybody fills it again.
    float* sums = SharedArray<float>(params.partial_at + set % 2 * params.partial_bytes,
                                     params.partial_bytes / static_cast<int>(sizeof(float)));
    if (work.slots > 0) {
      StoreChunk<kRowTiles, kTiles>(chunk.accumulators, matmul.rows, set_outputs,
                                    work.group * kTiles * kTileOutputs,
                                    sums + work.chunk * matmul.rows * set_outputs);
    }
    __syncthreads();
    FinishSet(matmul, matmul.segments[segment], plan.chunks, set_outputs,
              set * work.groups * kTiles, sums);
  }
}

// Up to 8 kRowTiles rows. Block: some sets of one segment.
template <int kRowTiles, int kTiles, bool kPair>
__global__ void __launch_bounds__(kDecodeThreads, 1)
    MatmulDecodeKernel(const __grid_constant__ MatmulParams params) {
  const Matmul& matmul = params.matmul;
  int segment = 0;
  while (segment + 1 < matmul.segment_count &&
         static_cast<int>(blockIdx.x) >= params.plans[segment + 1].first_block) {
    ++segment;
  }
  const PackedMatrix& matrix = matmul.segments[segment].matrix;
  const DecodeWork work =
      WorkOf<kTiles>(params.plans[segment], LayoutOf(matrix.format).record_blocks);
  DecodeRing<kTiles, kPair> ring(params, segment, work);
  AllowNextKernel();
  for (int stage = 0; stage + 1 < params.stages; ++stage) {
    ring.CopySlotWeights(stage);
    CommitCopies();
    ring.Advance();
  }
  WaitForPreviousKernel();
  unsigned char* normed = nullptr;
  if (matmul.input.residual != nullptr) {
    normed =
        SharedArray<unsigned char>(params.normed_at, ColumnBlocks(matrix.cols) * (kPair ? 2 : 1) *
                                                         matmul.rows * kRowBlockBytes);
    NormPrologue<kPair>(matmul, matrix.cols, normed, SharedArray<float>(0, 4 * kMatmulWarps));
  } else {
    ring.Rewind();
    for (int stage = 0; stage + 1 < params.stages; ++stage) {
      ring.CopySlotRows(stage);
      CommitCopies();
      ring.Advance();
    }
  }
  MultiplySets<kRowTiles, kTiles, kPair>(params, segment, work, ring, normed);
}

template <int kRowTiles, int kTiles, bool kPair>
absl::Status RunDecodeKernel(const Matmul& matmul, const DeviceInfo& device, cudaStream_t stream) {
  const absl::StatusOr<MatmulLaunch> launch = PlanMatmulDecode(matmul, kTiles, device);
  if (!launch.ok()) return launch.status();
  LaunchDims dims;
  dims.grid_x = launch->grid_x;
  dims.threads = kDecodeThreads;
  dims.shared_bytes = launch->shared_bytes;
  dims.dependent = device.dependent_launch;
  return Launch("MatmulDecode", MatmulDecodeKernel<kRowTiles, kTiles, kPair>, dims, launch->params,
                stream);
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_MATMUL_DECODE_CUH_
