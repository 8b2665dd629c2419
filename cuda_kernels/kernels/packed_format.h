// How packed weights lie, for the host that packs them and the kernels that read them.
//
// W is cut into tiles of 16 outputs, the last one padded with zeros; a tile is a run of
// records over K, and a record one block (of 32 k) or, of the K types, a header and
// eight blocks. Scales follow a block's codes. The codes lie as the tensor core takes
// them (see mma.cuh): by lane (g = lane / 4, t = lane % 4), those of outputs g and g + 8
// together. A block takes two products, m = 0 and 1; element e = 0, 1 of register
// r = 2 i + (output >= 8) is k = BlockColumn(t, m, i, e).
//
//              codes of a lane                          scales of g; all f16 unless said
//   F16        [m] 16 bytes: registers                  none
//   F16Pair    as F16: hi of the block, then lo         none
//   Q4_0       [m] u32: code at bit 4 (r + 4 e)         d[g], d[g + 8]
//   Q4_1       the same                                 d[g], d[g + 8], m[g], m[g + 8]
//   Q5_0/Q5_1  the same, then behind those of all lanes: as Q4_0, Q4_1
//              u16, the high bit at 4 m + r + 8 e
//   Q8_0       [m][r / 2] u32: code + 128 at byte       d[g], d[g + 8]
//              2 (r % 2) + e
//   Q4_K       as Q4_0                                  u8 s[g], s[g+8], t[g], t[g+8]
//   Q5_K       as Q5_0                                  the same
//   Q6_K       as Q4_0, then behind those of all lanes: s8 s0[g], s0[g+8], s1[g], s1[g+8]
//              u32, the two high bits at 2 (4 m + r) + 16 e
//   header     Q4_K, Q5_K: d[g], d[g + 8], dmin[g], dmin[g + 8]; Q6_K: d[g], d[g + 8]
//
// Nothing is rounded: every quantised weight keeps the value that the file gives it.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_PACKED_FORMAT_H_
#define TOKEND_CUDA_KERNELS_KERNELS_PACKED_FORMAT_H_

#include <cstdint>

#include "cuda_kernels/kernels/matmul.h"

namespace tokend::cuda {

inline constexpr int kTileOutputs = 16;
inline constexpr int kBlockCols = 32;
inline constexpr int kMaxChunks = 8;

struct PackedLayout {
  int record_blocks;   // of 32 k
  int header_bytes;    // of a record
  int block_bytes;     // codes and scales
  int code_bytes;      // of a block: [32 lanes]
  int high_bit_bytes;  // of a block: [32 lanes], behind the codes

  constexpr int record_bytes() const { return header_bytes + record_blocks * block_bytes; }
};

constexpr PackedLayout LayoutOf(PackedFormat format) {
  switch (format) {
    case PackedFormat::kF16:
      return {1, 0, 1024, 1024, 0};
    case PackedFormat::kF16Pair:
      return {1, 0, 2048, 2048, 0};
    case PackedFormat::kQ4_0:
      return {1, 0, 256 + 32, 256, 0};
    case PackedFormat::kQ4_1:
      return {1, 0, 256 + 64, 256, 0};
    case PackedFormat::kQ5_0:
      return {1, 0, 256 + 64 + 32, 256, 64};
    case PackedFormat::kQ5_1:
      return {1, 0, 256 + 64 + 64, 256, 64};
    case PackedFormat::kQ8_0:
      return {1, 0, 512 + 32, 512, 0};
    case PackedFormat::kQ4_K:
      return {8, 64, 256 + 32, 256, 0};
    case PackedFormat::kQ5_K:
      return {8, 64, 256 + 64 + 32, 256, 64};
    case PackedFormat::kQ6_K:
      return {8, 32, 256 + 128 + 32, 256, 128};
  }
  return {};
}

// Q6_K has a scale for each 16 k, so that each product takes 16 that belong together;
// elsewhere a lane's k are consecutive.
constexpr int BlockColumn(PackedFormat format, int t, int m, int i, int e) {
  return format == PackedFormat::kQ6_K ? 16 * m + 4 * t + 2 * i + e : 8 * t + 4 * m + 2 * i + e;
}

constexpr int Tiles(const PackedMatrix& matrix) {
  const int outputs = matrix.gated ? kTileOutputs / 2 : kTileOutputs;
  return (matrix.outputs + outputs - 1) / outputs;
}

// Of a tile.
constexpr int Records(PackedFormat format, int cols) {
  const int record_cols = LayoutOf(format).record_blocks * kBlockCols;
  return (cols + record_cols - 1) / record_cols;
}

constexpr int Chunks(int records) { return records < kMaxChunks ? records : kMaxChunks; }

// First record of a chunk; of `chunks`: the end of the last.
constexpr int ChunkBegin(int records, int chunks, int chunk) { return records * chunk / chunks; }

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_PACKED_FORMAT_H_
