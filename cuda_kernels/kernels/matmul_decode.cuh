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
  const SetRange sets = SetsOf(plan, static_cast<int>(blockIdx.x) - plan.first_block);
  work.set_begin = sets.begin;
  work.set_end = sets.end;
  return work;
}

// What a slot holds of a format's tile at most, with a header; see SizeSlots.
template <PackedFormat kFormat>
constexpr int MostSlotBytes() {
  constexpr PackedLayout kLayout = LayoutOf(kFormat);
  int blocks = kMaxSlotBlocks;
  while (blocks > 1 && blocks * kLayout.block_bytes > kSlotWeightBytes) blocks /= 2;
  return kLayout.header_bytes + blocks * kLayout.block_bytes;
}

// One warp's ring: what comes next, and where it goes. A chunk of a tile is one run of
// bytes, which a pointer goes through; copies are few instructions, as they stand between
// products. A slot is named by its offset in bytes.
template <int kRowTiles, bool kPair>
class DecodeRing {
 public:
  TOKEND_DEVICE DecodeRing(const MatmulParams& params, int segment, const DecodeWork& work)
      : params_(params),
        plan_(params.plans[segment]),
        segment_(segment),
        work_(work),
        ring_(
            SharedArray<unsigned char>(params.ring_at + Warp() * params.stages * params.slot_bytes,
                                       params.stages * params.slot_bytes)),
        target_(ring_ + Lane() * kCopyBytes) {
    Rewind();
  }

  TOKEND_DEVICE const unsigned char* Slot(int at) const { return ring_ + at; }
  // Of the slot before, in the ring.
  TOKEND_DEVICE int Before(int at) const {
    return (at == 0 ? params_.stages * params_.slot_bytes : at) - params_.slot_bytes;
  }
  // Blocks of the slot that begins at `block` of the chunk.
  TOKEND_DEVICE int Count(int block) const { return min(plan_.slot_blocks, work_.blocks - block); }

  // What comes next, weights or rows, into a slot; then Advance.
  TOKEND_DEVICE void CopyWeights(int at) const {
    if (AtEnd()) return;
    const int header = Header();
    CopyRun<kMaxSlotWeightBytes>(at + plan_.header_bytes - header,
                                 Count(block_) * plan_.block_bytes + header);
  }
  TOKEND_DEVICE void CopyRows(int at) const {
    if (params_.matmul.input.residual == nullptr && !AtEnd()) CopyRowBlocks(at, Count(block_));
  }
  TOKEND_DEVICE void Advance() {
    if (AtEnd()) return;
    const int count = Count(block_);
    Pass(count, count * plan_.block_bytes + Header());
  }
  // All three. Rows of a norm are not copied.
  template <PackedFormat kFormat, bool kNormed>
  TOKEND_DEVICE void Refill(int at) {
    constexpr PackedLayout kLayout = LayoutOf(kFormat);
    if (AtEnd()) return;
    const int count = Count(block_);
    const int header = block_ % kLayout.record_blocks == 0 ? kLayout.header_bytes : 0;
    const int bytes = count * kLayout.block_bytes + header;
    CopyRun<MostSlotBytes<kFormat>()>(at + kLayout.header_bytes - header, bytes);
    if constexpr (!kNormed) CopyRowBlocks(at, count);
    Pass(count, bytes);
  }
  TOKEND_DEVICE void Rewind() { BeginSet(work_.blocks > 0 ? work_.set_begin : work_.set_end); }

 private:
  TOKEND_DEVICE bool AtEnd() const { return set_ >= work_.set_end; }
  // Bytes of the record's header, if the record begins here.
  TOKEND_DEVICE int Header() const {
    return WithinRecord(plan_, block_) == 0 ? plan_.header_bytes : 0;
  }
  template <int kMost>
  TOKEND_DEVICE void CopyRun(int at, int bytes) const {
    const int own = bytes - Lane() * kCopyBytes;
    const unsigned char* from =
        params_.matmul.segments[segment_].matrix.data + static_cast<int64_t>(from_) * kCopyBytes;
#pragma unroll
    for (int i = 0; i < kMost; i += kWarpLanes * kCopyBytes) {
      if (i < own) target_.Copy16(at + i, from + i);
    }
  }
  // Rows of the same k, as [block][plane][rows][32]; what lies beyond cols is zero. Eight
  // row-blocks at a time, of up to eight rows each.
  TOKEND_DEVICE void CopyRowBlocks(int at, int count) const {
    constexpr int kPlanes = kPair ? 2 : 1;
    const Matmul& matmul = params_.matmul;
    const HalfRows& half = matmul.input.half;
    const int shift = min(params_.row_shift, 3);
    const int cols = matmul.segments[0].matrix.cols;
    const int row = Lane() / kCopyUnits & ((1 << shift) - 1);
    // From the lane's first bytes in the ring to where its first row goes.
    at +=
        params_.slot_rows_at + row * kRowBlockBytes - Lane() / kCopyUnits * kCopyUnits * kCopyBytes;
    const int block_bytes = kPlanes * matmul.rows * kRowBlockBytes;
    for (int b = Lane() / kCopyUnits >> shift; b < count; b += 8 >> shift) {
      const int column = (work_.first_block + block_ + b) * kBlockCols + Lane() % kCopyUnits * 8;
      const bool valid = column < cols;
      const int to = at + b * block_bytes;
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        const __half* from = (p == 0 ? half.hi : half.lo) + row * half.stride + column;
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          if (n * 8 + row >= matmul.rows) continue;
          target_.Copy16(to + (p * matmul.rows + n * 8) * kRowBlockBytes,
                         from + n * 8 * half.stride, valid);
        }
      }
    }
  }
  TOKEND_DEVICE void Pass(int count, int bytes) {
    from_ += bytes / kCopyBytes;
    block_ += count;
    if (block_ == work_.blocks) BeginSet(set_ + 1);
  }
  // A tile beyond the last one is that one again, and not used.
  TOKEND_DEVICE void BeginSet(int set) {
    set_ = set;
    block_ = 0;
    const int tile = min(set * work_.groups + work_.group, plan_.tiles - 1);
    from_ = static_cast<int>((tile * plan_.tile_bytes + RecordOffset(plan_, work_.first_block)) /
                             kCopyBytes) +
            Lane();
  }

  const MatmulParams& params_;
  const SegmentPlan& plan_;
  int segment_;
  const DecodeWork& work_;
  unsigned char* ring_;
  CopyTarget target_;  // this lane's first 16 bytes of the ring
  int from_;
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

// Adds a chunk of one tile from `at` on in the ring, and leaves `at` behind it. kNormed:
// the rows are the prologue's.
template <PackedFormat kFormat, int kRowTiles, bool kPair, bool kNormed>
TOKEND_DEVICE void AddChunk(const MatmulParams& params, const DecodeWork& work, int slot_blocks,
                            DecodeRing<kRowTiles, kPair>& ring, int& at,
                            DecodeSums<kRowTiles>& sums) {
  const int block_bytes = (kPair ? 2 : 1) * params.matmul.rows * kRowBlockBytes;
  for (int block = 0; block < work.blocks; block += slot_blocks) {
    WaitForRing(params.stages);
    __syncwarp();
    // The slot before is read: it takes what comes next.
    ring.template Refill<kFormat, kNormed>(ring.Before(at));
    CommitCopies();
    const unsigned char* slot = ring.Slot(at);
    const int count = ring.Count(block);
    const unsigned char* rows = slot + params.slot_rows_at;
    if constexpr (kNormed) {
      rows = SharedArray<unsigned char>(params.normed_at + (work.first_block + block) * block_bytes,
                                        count * block_bytes);
    }
    AddSlot<kFormat, kRowTiles, kPair>(params, slot, rows, block, count, sums);
    at += params.slot_bytes;
    if (at == params.stages * params.slot_bytes) at = 0;
  }
}

template <int kRowTiles, bool kPair>
TOKEND_DEVICE void MultiplySets(const MatmulParams& params, int segment, const DecodeWork& work,
                                DecodeRing<kRowTiles, kPair>& ring) {
  const Matmul& matmul = params.matmul;
  const SegmentPlan& plan = params.plans[segment];
  const PackedFormat format = matmul.segments[segment].matrix.format;
  const int set_outputs = work.groups * kTileOutputs;
  DecodeSums<kRowTiles> chunk;
  int at = 0;
  for (int set = work.set_begin; set < work.set_end; ++set) {
    chunk = {};
    ForFormat<kPair>(format, [&](auto constant) {
      constexpr PackedFormat kFormat = decltype(constant)::value;
      if constexpr (kRowTiles == 1) {
        if (matmul.input.residual != nullptr) {
          return AddChunk<kFormat, 1, kPair, true>(params, work, plan.slot_blocks, ring, at, chunk);
        }
      }
      AddChunk<kFormat, kRowTiles, kPair, false>(params, work, plan.slot_blocks, ring, at, chunk);
    });
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
    ring.CopyWeights(stage * params.slot_bytes);
    CommitCopies();
    ring.Advance();
  }
  WaitForPreviousKernel();
  if (matmul.input.residual != nullptr) {
    unsigned char* const normed =
        SharedArray<unsigned char>(params.normed_at, ColumnBlocks(matrix.cols) * (kPair ? 2 : 1) *
                                                         matmul.rows * kRowBlockBytes);
    NormPrologue<kPair>(matmul, matrix.cols, normed, SharedArray<float>(0, 4 * kMatmulWarps));
  } else {
    ring.Rewind();
    for (int stage = 0; stage + 1 < params.stages; ++stage) {
      ring.CopyRows(stage * params.slot_bytes);
      CommitCopies();
      ring.Advance();
    }
  }
  MultiplySets<kRowTiles, kPair>(params, segment, work, ring);
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
