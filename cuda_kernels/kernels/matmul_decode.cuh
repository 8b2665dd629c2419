// Few rows: what counts is that weights keep coming. A warp takes one chunk of K of one
// tile at a time, through a ring of its own in shared memory that runs on from one tile
// to the next; the block adds the chunks.
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
  int group;        // of warps with one chunk each; those left over have no blocks
  int groups;       // of a block, a power of two
  int first_block;  // of the chunk, of 32 k
  int blocks;
  int set_begin;  // a set is a tile for each group
  int set_end;
};

TOKEND_DEVICE DecodeWork WorkOf(const SegmentPlan& plan) {
  DecodeWork work;
  work.chunk = Warp() % plan.chunks;
  work.group = Warp() / plan.chunks;
  work.groups = kMatmulWarps / plan.chunks;
  const int begin = ChunkBegin(plan.records, plan.chunks, work.chunk);
  const int end = ChunkBegin(plan.records, plan.chunks, work.chunk + 1);
  work.first_block = begin << plan.record_shift;
  work.blocks = work.group < work.groups ? (end - begin) << plan.record_shift : 0;
  const int sets = (plan.tiles + work.groups - 1) / work.groups;
  const int index = static_cast<int>(blockIdx.x) - plan.first_block;
  work.set_begin = static_cast<int>(static_cast<int64_t>(sets) * index / plan.blocks);
  work.set_end = static_cast<int>(static_cast<int64_t>(sets) * (index + 1) / plan.blocks);
  return work;
}

// One warp's ring: what comes next, and where it goes. A chunk of a tile is one run of
// bytes, which a pointer goes through; copies are few instructions, as they stand between
// products.
template <int kRowTiles, bool kPair>
class DecodeRing {
 public:
  TOKEND_DEVICE DecodeRing(const MatmulParams& params, int segment, const DecodeWork& work)
      : params_(params), plan_(params.plans[segment]), segment_(segment), work_(work) {
    ring_ = SharedArray<unsigned char>(params.ring_at + Warp() * params.stages * params.slot_bytes,
                                       params.stages * params.slot_bytes);
    Rewind();
  }

  TOKEND_DEVICE unsigned char* Slot(int stage) const { return ring_ + stage * params_.slot_bytes; }
  // Blocks of the slot that begins at `block` of the chunk.
  TOKEND_DEVICE int Count(int block) const { return min(plan_.slot_blocks, work_.blocks - block); }

  // Copies what comes next into `stage`.
  TOKEND_DEVICE void CopyWeights(int stage) const {
    if (AtEnd()) return;
    const bool headed = Headed();
    const int bytes = Bytes();
    unsigned char* to = Slot(stage) + (headed ? 0 : plan_.header_bytes) + Lane() * kCopyBytes;
#pragma unroll
    for (int i = 0; i < kMaxSlotWeightBytes; i += kWarpLanes * kCopyBytes) {
      if (i + Lane() * kCopyBytes < bytes) CopyAsync16(to + i, from_ + i);
    }
  }
  // Rows of the same k, as [block][plane][rows][32]; what lies beyond cols is zero.
  TOKEND_DEVICE void CopyRows(int stage) const {
    const Matmul& matmul = params_.matmul;
    if (matmul.input.residual != nullptr || AtEnd()) return;
    constexpr int kPlanes = kPair ? 2 : 1;
    // Eight row-blocks at a time, of up to eight rows each.
    const HalfRows& half = matmul.input.half;
    const int shift = min(params_.row_shift, 3);
    const int row = Lane() / kCopyUnits & ((1 << shift) - 1);
    const int column = Lane() % kCopyUnits * 8;
    const int64_t offset = row * half.stride + column;
    unsigned char* to = Slot(stage) + params_.slot_rows_at + Lane() % kCopyUnits * kCopyBytes;
    const int end = Count(block_) * kPlanes;
    for (int pb = Lane() / kCopyUnits >> shift; pb < end; pb += 8 >> shift) {
      const int first = (work_.first_block + block_ + pb / kPlanes) * kBlockCols;
      const __half* from = (pb % kPlanes == 0 ? half.hi : half.lo) + offset + first;
      const bool valid = first + column < matmul.segments[0].matrix.cols;
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        if (n * 8 + row >= matmul.rows) continue;
        CopyAsync16(to + (pb * matmul.rows + n * 8 + row) * kRowBlockBytes,
                    from + n * 8 * half.stride, valid);
      }
    }
  }
  TOKEND_DEVICE void Advance() {
    if (AtEnd()) return;
    from_ += Bytes();
    block_ += Count(block_);
    if (block_ == work_.blocks) BeginSet(set_ + 1);
  }
  TOKEND_DEVICE void Rewind() { BeginSet(work_.set_begin); }

 private:
  TOKEND_DEVICE bool AtEnd() const { return set_ >= work_.set_end || work_.blocks == 0; }
  // A record begins here, with its header.
  TOKEND_DEVICE bool Headed() const { return WithinRecord(plan_, block_) == 0; }
  TOKEND_DEVICE int Bytes() const {
    return Count(block_) * plan_.block_bytes + (Headed() ? plan_.header_bytes : 0);
  }
  // A tile beyond the last one is that one again, and not used.
  TOKEND_DEVICE void BeginSet(int set) {
    set_ = set;
    block_ = 0;
    const int tile = min(set * work_.groups + work_.group, plan_.tiles - 1);
    from_ = params_.matmul.segments[segment_].matrix.data + tile * plan_.tile_bytes +
            RecordOffset(plan_, work_.first_block) + Lane() * kCopyBytes;
  }

  const MatmulParams& params_;
  const SegmentPlan& plan_;
  int segment_;
  const DecodeWork& work_;
  unsigned char* ring_;
  const unsigned char* from_;
  int set_;
  int block_;  // of the chunk
};

template <int kRowTiles>
struct DecodeSums {
  uint2 header;  // of the record
  float accumulators[kRowTiles][4];
};

// Adds the blocks of one slot, of which `block` is the first.
template <PackedFormat kFormat, int kRowTiles, bool kPair>
TOKEND_DEVICE void AddSlot(const MatmulParams& params, const unsigned char* slot,
                           const unsigned char* rows, int block, int count,
                           DecodeSums<kRowTiles>& sums) {
  constexpr PackedLayout kLayout = LayoutOf(kFormat);
  constexpr BlockKind kKind = KindOf<kFormat>();
  const int row_count = params.matmul.rows;
  const int plane_bytes = row_count * kRowBlockBytes;
  const int block_stride = (kPair ? 2 : 1) * plane_bytes;
  // A row beyond the last one is that one again: its results are not stored.
  const unsigned char* lane_rows[kRowTiles];
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    lane_rows[n] =
        rows + min(n * 8 + Lane() / 4, row_count - 1) * kRowBlockBytes + RowOffset<kKind>();
  }
  if (FormatTraits<kFormat>::kSuper && block % kLayout.record_blocks == 0) {
    sums.header = LoadHeader<kFormat>(slot);
  }
  const RecordScales scales = ScalesOf<kFormat>(sums.header);
  BlockPointers pointers = PointersOf<kFormat>(slot + kLayout.header_bytes);
#pragma unroll 2
  for (int b = 0; b < count; ++b) {
    const BlockWeights<kKind> weights = LoadBlock<kFormat>(pointers, scales);
    pointers.Advance(kLayout.block_bytes);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const BlockRows<kPair> x = LoadRows<kKind, kPair>(lane_rows[n], plane_bytes);
      lane_rows[n] += block_stride;
      float2 row_sums = {};
      if constexpr (kKind == BlockKind::kScaledMinimum) row_sums = SumRows<kPair>(x);
      AddBlock<kKind, kPair>(weights, x, row_sums, sums.accumulators[n]);
    }
  }
}

// Leaves a chunk's sums as [row][output of the set] at `sums`.
template <int kRowTiles>
TOKEND_DEVICE void StoreChunk(const float (&accumulators)[kRowTiles][4], int rows, int set_outputs,
                              int first_output, float* sums) {
  const int g = Lane() / 4;
  const int t2 = Lane() % 4 * 2;
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = n * 8 + t2 + e % 2;
      if (row >= rows) continue;
      sums[row * set_outputs + first_output + g + e / 2 * 8] = accumulators[n][e];
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

template <int kRowTiles, bool kPair>
TOKEND_DEVICE void MultiplySets(const MatmulParams& params, int segment, const DecodeWork& work,
                                DecodeRing<kRowTiles, kPair>& ring, const unsigned char* normed) {
  const Matmul& matmul = params.matmul;
  const SegmentPlan& plan = params.plans[segment];
  const PackedFormat format = matmul.segments[segment].matrix.format;
  const int set_outputs = work.groups * kTileOutputs;
  const int normed_block_bytes = (kPair ? 2 : 1) * matmul.rows * kRowBlockBytes;
  DecodeSums<kRowTiles> chunk;
  int stage = 0;
  for (int set = work.set_begin; set < work.set_end; ++set) {
    chunk = {};
    for (int block = 0; block < work.blocks; block += plan.slot_blocks) {
      WaitForRing(params.stages);
      __syncwarp();
      // The slot before is read: it takes what comes next.
      const int refill = stage == 0 ? params.stages - 1 : stage - 1;
      ring.CopyWeights(refill);
      ring.CopyRows(refill);
      CommitCopies();
      ring.Advance();
      const unsigned char* slot = ring.Slot(stage);
      const unsigned char* rows = matmul.input.residual != nullptr
                                      ? normed + (work.first_block + block) * normed_block_bytes
                                      : slot + params.slot_rows_at;
      const int count = ring.Count(block);
      ForFormat<kPair>(format, [&](auto constant) {
        AddSlot<decltype(constant)::value, kRowTiles, kPair>(params, slot, rows, block, count,
                                                             chunk);
      });
      stage = stage + 1 == params.stages ? 0 : stage + 1;
    }
    // Two buffers: all have left one before anybody fills it again.
    float* sums = SharedArray<float>(params.partial_at + set % 2 * params.partial_bytes,
                                     params.partial_bytes / static_cast<int>(sizeof(float)));
    if (work.blocks > 0) {
      StoreChunk<kRowTiles>(chunk.accumulators, matmul.rows, set_outputs, work.group * kTileOutputs,
                            sums + work.chunk * matmul.rows * set_outputs);
    }
    __syncthreads();
    FinishSet(matmul, matmul.segments[segment], plan.chunks, set_outputs, set * work.groups, sums);
  }
}

// Of a multiprocessor, as registers allow: on 9.0 two of one kernel and two of the next.
// Elsewhere the same code would spill.
template <int kRowTiles, bool kPair>
inline constexpr int kDecodeBlocks = 4 / (kRowTiles * (kPair ? 2 : 1));
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
inline constexpr int kMostDecodeBlocks = 3;
#else
inline constexpr int kMostDecodeBlocks = 4;
#endif

// Up to 8 kRowTiles rows. Block: some sets of one segment.
template <int kRowTiles, bool kPair>
__global__ void __launch_bounds__(kDecodeThreads,
                                  kDecodeBlocks<kRowTiles, kPair> < kMostDecodeBlocks
                                      ? kDecodeBlocks<kRowTiles, kPair>
                                      : kMostDecodeBlocks)
    MatmulDecodeKernel(const __grid_constant__ MatmulParams params) {
  const Matmul& matmul = params.matmul;
  int segment = 0;
  while (segment + 1 < matmul.segment_count &&
         static_cast<int>(blockIdx.x) >= params.plans[segment + 1].first_block) {
    ++segment;
  }
  const PackedMatrix& matrix = matmul.segments[segment].matrix;
  const DecodeWork work = WorkOf(params.plans[segment]);
  DecodeRing<kRowTiles, kPair> ring(params, segment, work);
  AllowNextKernel();
  for (int stage = 0; stage + 1 < params.stages; ++stage) {
    ring.CopyWeights(stage);
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
      ring.CopyRows(stage);
      CommitCopies();
      ring.Advance();
    }
  }
  MultiplySets<kRowTiles, kPair>(params, segment, work, ring, normed);
}

template <int kRowTiles, bool kPair>
absl::Status RunDecodeKernel(const Matmul& matmul, const DeviceInfo& device, cudaStream_t stream) {
  const absl::StatusOr<MatmulLaunch> launch =
      PlanMatmulDecode(matmul, kDecodeBlocks<kRowTiles, kPair>, device);
  if (!launch.ok()) return launch.status();
  LaunchDims dims;
  dims.grid_x = launch->grid_x;
  dims.threads = kDecodeThreads;
  dims.shared_bytes = launch->shared_bytes;
  dims.dependent = device.dependent_launch;
  return Launch("MatmulDecode", MatmulDecodeKernel<kRowTiles, kPair>, dims, launch->params, stream);
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_MATMUL_DECODE_CUH_
