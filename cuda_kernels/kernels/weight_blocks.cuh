// Products of one block of packed weights, 16 outputs x 32 k, with up to 8 rows: what
// every matmul kernel does in its innermost loop, with the same bits.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_WEIGHT_BLOCKS_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_WEIGHT_BLOCKS_CUH_

#include "cuda_kernels/device/half_codes.cuh"
#include "cuda_kernels/device/mma.cuh"
#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/kernels/packed_format.h"

namespace tokend::cuda {

template <PackedFormat kFormat>
struct FormatTraits {
  static constexpr bool kHalf = kFormat == PackedFormat::kF16 || kFormat == PackedFormat::kF16Pair;
  static constexpr bool kSixteens = kFormat == PackedFormat::kQ6_K;  // a scale for each 16 k
  static constexpr bool kSuper = LayoutOf(kFormat).record_blocks > 1;
  static constexpr bool kMinimum =
      kFormat == PackedFormat::kQ4_1 || kFormat == PackedFormat::kQ5_1 || (kSuper && !kSixteens);
  static constexpr int kHighBits = LayoutOf(kFormat).high_bit_bytes / 64;
  static constexpr int kZero = kFormat == PackedFormat::kQ4_0   ? 8
                               : kFormat == PackedFormat::kQ5_0 ? 16
                               : kFormat == PackedFormat::kQ8_0 ? 128
                               : kFormat == PackedFormat::kQ6_K ? 32
                                                                : 0;
};

// How a block's products are summed: formats of one kind differ in unpacking alone.
enum class BlockKind {
  kHalf,           // a chain through the chunk
  kHalfPair,       // the same, of two planes
  kScaled,         // a chain per block, times d
  kScaledMinimum,  // and a minimum
  kSixteens,       // a chain and a scale for each 16 k
};

constexpr int PlanesOf(BlockKind kind) { return kind == BlockKind::kHalfPair ? 2 : 1; }

template <PackedFormat kFormat>
constexpr BlockKind KindOf() {
  using Traits = FormatTraits<kFormat>;
  if (kFormat == PackedFormat::kF16Pair) return BlockKind::kHalfPair;
  if (Traits::kHalf) return BlockKind::kHalf;
  if (Traits::kSixteens) return BlockKind::kSixteens;
  return Traits::kMinimum ? BlockKind::kScaledMinimum : BlockKind::kScaled;
}

// Of outputs g and g + 8 of a record of the K types.
struct RecordScales {
  float d[2];
  float minimum[2];         // -dmin
  float d_offset[2];        // -2^23 d
  float minimum_offset[2];  // 2^23 dmin
};

template <BlockKind kKind>
struct BlockWeights {
  uint32_t a[PlanesOf(kKind)][2][4];  // [plane][m][register]
  float d[2][2];                      // [k / 16 where a scale is for 16 k, else 0][g, g + 8]
  float minimum[2];                   // [g, g + 8], to be added
};

// 32 k of 8 rows, one row a lane group: registers 2 m + i of each plane (see
// packed_format.h).
template <bool kPair>
struct BlockRows {
  uint32_t b[kPair ? 2 : 1][4];
};

// This lane's part of a record's header: d and dmin as they lie there.
template <PackedFormat kFormat>
TOKEND_DEVICE uint2 LoadHeader(const unsigned char* header) {
  const int g = Lane() / 4;
  if constexpr (FormatTraits<kFormat>::kSixteens) {
    return make_uint2(reinterpret_cast<const uint32_t*>(header)[g], 0);
  } else {
    return reinterpret_cast<const uint2*>(header)[g];
  }
}

// Nothing for formats without records.
template <PackedFormat kFormat>
TOKEND_DEVICE RecordScales ScalesOf(uint2 header) {
  RecordScales scales = {};
  if constexpr (FormatTraits<kFormat>::kSuper) {
    const __half2 d = HalvesFromBits(header.x);
    scales.d[0] = __low2float(d);
    scales.d[1] = __high2float(d);
    if constexpr (!FormatTraits<kFormat>::kSixteens) {
      const __half2 minimum = HalvesFromBits(header.y);
      scales.minimum[0] = -__low2float(minimum);
      scales.minimum[1] = -__high2float(minimum);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        scales.d_offset[i] = -0x1p23f * scales.d[i];
        scales.minimum_offset[i] = -0x1p23f * scales.minimum[i];
      }
    }
  }
  return scales;
}

// Moves bit `kFrom` to `kTo`.
template <int kFrom, int kTo>
TOKEND_DEVICE uint32_t MoveBit(uint32_t bits) {
  if constexpr (kFrom > kTo) {
    return bits >> (kFrom - kTo);
  } else {
    return bits << (kTo - kFrom);
  }
}

// Registers 2 i and 2 i + 1 of product m from two nibbles in each half of `nibbles` at
// bits 0 and 4; `high` holds the bits above, kHigh of each code, in each half.
template <PackedFormat kFormat, int m, int i>
TOKEND_DEVICE void UnpackNibbles(uint32_t nibbles, uint32_t high, uint32_t (&a)[4]) {
  using Traits = FormatTraits<kFormat>;
  uint32_t low_bits = MaskAndOr<0x000f000fu>(nibbles, kTwo1024);
  uint32_t high_bits = MaskAndOr<0x00f000f0u>(nibbles, kTwo1024);
  if constexpr (Traits::kHighBits > 0) {
    constexpr uint32_t kMask = Traits::kHighBits == 2 ? 3 : 1;
    constexpr int kAt = Traits::kHighBits * (4 * m + 2 * i);
    low_bits = MaskAndOr<(kMask << 4 | kMask << 20)>(MoveBit<kAt, 4>(high), low_bits);
    high_bits =
        MaskAndOr<(kMask << 8 | kMask << 24)>(MoveBit<kAt + Traits::kHighBits, 8>(high), high_bits);
  }
  a[2 * i] = LowCodes<Traits::kZero>(low_bits);
  a[2 * i + 1] = HighCodes<Traits::kZero>(high_bits);
}

// Where this lane reads of a block in shared memory.
struct BlockPointers {
  const unsigned char* codes;
  const unsigned char* high;  // bits
  const unsigned char* scales;

  TOKEND_DEVICE void Advance(int bytes) {
    codes += bytes;
    high += bytes;
    scales += bytes;
  }
};

template <PackedFormat kFormat>
TOKEND_DEVICE BlockPointers PointersOf(const unsigned char* block) {
  using Traits = FormatTraits<kFormat>;
  constexpr PackedLayout kLayout = LayoutOf(kFormat);
  constexpr int kCodeBytes = Traits::kHalf ? 16 : kLayout.code_bytes / kWarpLanes;
  constexpr int kScaleBytes =
      (kLayout.block_bytes - kLayout.code_bytes - kLayout.high_bit_bytes) / 8;
  BlockPointers pointers;
  pointers.codes = block + Lane() * kCodeBytes;
  pointers.high = block + kLayout.code_bytes + Lane() * (kLayout.high_bit_bytes / kWarpLanes);
  pointers.scales = block + kLayout.code_bytes + kLayout.high_bit_bytes + Lane() / 4 * kScaleBytes;
  return pointers;
}

template <PackedFormat kFormat>
TOKEND_DEVICE void LoadCodes(const BlockPointers& block, BlockWeights<KindOf<kFormat>()>& weights) {
  using Traits = FormatTraits<kFormat>;
  if constexpr (Traits::kHalf) {
#pragma unroll
    for (int p = 0; p < PlanesOf(KindOf<kFormat>()); ++p) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const uint4 all = reinterpret_cast<const uint4*>(block.codes)[(2 * p + m) * kWarpLanes];
        weights.a[p][m][0] = all.x;
        weights.a[p][m][1] = all.y;
        weights.a[p][m][2] = all.z;
        weights.a[p][m][3] = all.w;
      }
    }
  } else if constexpr (kFormat == PackedFormat::kQ8_0) {
    const uint4 all = *reinterpret_cast<const uint4*>(block.codes);
    const uint32_t words[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t* a = &weights.a[0][w / 2][w % 2 * 2];
      a[0] = LowCodes<Traits::kZero>(SelectBytes(words[w], kTwo1024 >> 8, 0x6160u));
      a[1] = LowCodes<Traits::kZero>(SelectBytes(words[w], kTwo1024 >> 8, 0x6362u));
    }
  } else {
    const uint2 words = *reinterpret_cast<const uint2*>(block.codes);
    uint32_t high = 0;
    if constexpr (Traits::kHighBits == 1) {
      high = SelectBytes(*reinterpret_cast<const uint16_t*>(block.high), 0, 0x4140u);
    } else if constexpr (Traits::kHighBits == 2) {
      high = *reinterpret_cast<const uint32_t*>(block.high);
    }
    UnpackNibbles<kFormat, 0, 0>(words.x, high, weights.a[0][0]);
    UnpackNibbles<kFormat, 0, 1>(words.x >> 8, high, weights.a[0][0]);
    UnpackNibbles<kFormat, 1, 0>(words.y, high, weights.a[0][1]);
    UnpackNibbles<kFormat, 1, 1>(words.y >> 8, high, weights.a[0][1]);
  }
}

template <PackedFormat kFormat>
TOKEND_DEVICE void LoadScales(const unsigned char* scales, const RecordScales& record,
                              BlockWeights<KindOf<kFormat>()>& weights) {
  using Traits = FormatTraits<kFormat>;
  if constexpr (Traits::kHalf) return;
  if constexpr (Traits::kSuper) {
    const uint32_t all = *reinterpret_cast<const uint32_t*>(scales);
    // Without conversions, which are slow. All is exact: d has 11 bits, scales at most 8.
    if constexpr (Traits::kSixteens) {
      const uint32_t biased = all ^ 0x80808080u;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights.d[i / 2][i % 2] = record.d[i % 2] * (FloatFromByte(biased, i) - (0x1p23f + 128));
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        weights.d[0][i] = fmaf(record.d[i], FloatFromByte(all, i), record.d_offset[i]);
        weights.minimum[i] =
            fmaf(record.minimum[i], FloatFromByte(all, 2 + i), record.minimum_offset[i]);
      }
    }
  } else if constexpr (Traits::kMinimum) {
    const uint2 all = *reinterpret_cast<const uint2*>(scales);
    weights.d[0][0] = __low2float(HalvesFromBits(all.x));
    weights.d[0][1] = __high2float(HalvesFromBits(all.x));
    weights.minimum[0] = __low2float(HalvesFromBits(all.y));
    weights.minimum[1] = __high2float(HalvesFromBits(all.y));
  } else {
    const __half2 d = HalvesFromBits(*reinterpret_cast<const uint32_t*>(scales));
    weights.d[0][0] = __low2float(d);
    weights.d[0][1] = __high2float(d);
  }
}

template <PackedFormat kFormat>
TOKEND_DEVICE BlockWeights<KindOf<kFormat>()> LoadBlock(const BlockPointers& block,
                                                        const RecordScales& record) {
  BlockWeights<KindOf<kFormat>()> weights;
  LoadCodes<kFormat>(block, weights);
  LoadScales<kFormat>(block.scales, record, weights);
  return weights;
}

// Where this lane reads of its row's 32 halves.
template <BlockKind kKind>
TOKEND_DEVICE int RowOffset() {
  return Lane() % 4 * (kKind == BlockKind::kSixteens ? 8 : 16);
}

// `row` is this lane's row (of 8, row lane / 4) in shared memory, RowOffset from its
// start: 32 halves a plane, planes `plane_bytes` apart.
template <BlockKind kKind, bool kPair>
TOKEND_DEVICE BlockRows<kPair> LoadRows(const unsigned char* row, int plane_bytes) {
  BlockRows<kPair> rows;
#pragma unroll
  for (int p = 0; p < (kPair ? 2 : 1); ++p) {
    const unsigned char* plane = row + p * plane_bytes;
    if constexpr (kKind == BlockKind::kSixteens) {
      const uint2 first = *reinterpret_cast<const uint2*>(plane);
      const uint2 second = *reinterpret_cast<const uint2*>(plane + kBlockCols);
      rows.b[p][0] = first.x;
      rows.b[p][1] = first.y;
      rows.b[p][2] = second.x;
      rows.b[p][3] = second.y;
    } else {
      const uint4 all = *reinterpret_cast<const uint4*>(plane);
      rows.b[p][0] = all.x;
      rows.b[p][1] = all.y;
      rows.b[p][2] = all.z;
      rows.b[p][3] = all.w;
    }
  }
  return rows;
}

TOKEND_DEVICE void MultiplyHalf(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4],
                                int m) {
  const uint32_t half[2] = {b[2 * m], b[2 * m + 1]};
  MmaF16(d, a, half);
}

// Sums of the 32 k of rows 2 t and 2 t + 1, for the minima: products with ones, whose
// result lies where it is needed.
template <bool kPair>
TOKEND_DEVICE float2 SumRows(const BlockRows<kPair>& rows) {
  constexpr uint32_t kOnes = 0x3c003c00u;
  const uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
  float sums[4] = {0, 0, 0, 0};
#pragma unroll
  for (int p = 0; p < (kPair ? 2 : 1); ++p) {
    MultiplyHalf(sums, ones, rows.b[p], 0);
    MultiplyHalf(sums, ones, rows.b[p], 1);
  }
  return make_float2(sums[0], sums[1]);
}

// accumulator += W x over the block; its elements as D in mma.cuh. `sums` are of
// SumRows, where the format has minima.
template <BlockKind kKind, bool kPair>
TOKEND_DEVICE void AddBlock(const BlockWeights<kKind>& weights, const BlockRows<kPair>& rows,
                            float2 sums, float (&accumulator)[4]) {
  constexpr int kPlanes = kPair ? 2 : 1;
  if constexpr (kKind == BlockKind::kHalf || kKind == BlockKind::kHalfPair) {
    // The chain goes on from block to block. hi hi, hi lo, lo hi; lo lo is below 2^-22.
#pragma unroll
    for (int q = 0; q < PlanesOf(kKind); ++q) {
#pragma unroll
      for (int p = 0; p < kPlanes - q; ++p) {
        MultiplyHalf(accumulator, weights.a[q][0], rows.b[p], 0);
        MultiplyHalf(accumulator, weights.a[q][1], rows.b[p], 1);
      }
    }
    return;
  }
  constexpr int kChains = kKind == BlockKind::kSixteens ? 2 : 1;
  float d[kChains][4] = {};
#pragma unroll
  for (int p = 0; p < kPlanes; ++p) {
    MultiplyHalf(d[0], weights.a[0][0], rows.b[p], 0);
    MultiplyHalf(d[kChains - 1], weights.a[0][1], rows.b[p], 1);
  }
#pragma unroll
  for (int s = 0; s < kChains; ++s) {
#pragma unroll
    for (int e = 0; e < 4; ++e) accumulator[e] = fmaf(weights.d[s][e / 2], d[s][e], accumulator[e]);
  }
  if constexpr (kKind == BlockKind::kScaledMinimum) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      accumulator[e] = fmaf(weights.minimum[e / 2], e % 2 == 0 ? sums.x : sums.y, accumulator[e]);
    }
  }
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_WEIGHT_BLOCKS_CUH_
