#include "cuda_kernels/device/dependent_launch.cuh"
#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/device/platform.cuh"
#include "cuda_kernels/kernels/embedding.h"
#include "cuda_kernels/kernels/packed_format.h"

namespace tokend::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kUnitCols = 8;                    // what a lane of a packed block holds
constexpr int kUnits = kBlockCols / kUnitCols;  // of a block and an output

// Where a row lies: its tile, and its place among the 16 outputs.
struct RowPlace {
  const unsigned char* tile;
  int g;
  int side;
};

TOKEND_DEVICE RowPlace FindRow(const PackedMatrix& matrix, int64_t row) {
  const int64_t tile_bytes = static_cast<int64_t>(Records(matrix.format, matrix.cols)) *
                             LayoutOf(matrix.format).record_bytes();
  const int output = static_cast<int>(row % kTileOutputs);
  return {matrix.data + row / kTileOutputs * tile_bytes, output % 8, output / 8};
}

TOKEND_DEVICE float HalfAt(const unsigned char* at) {
  return __half2float(*reinterpret_cast<const __half*>(at));
}

// What a code is multiplied by and what is added, for the 16 k of product `m`.
struct CodeScale {
  float d;
  float minimum;
};

// `scales` stand behind the block's codes, `header` before the record's blocks.
TOKEND_DEVICE CodeScale LoadScale(PackedFormat format, const unsigned char* header,
                                  const unsigned char* scales, const RowPlace& place, int m) {
  const int pair = 4 * place.g + 2 * place.side;  // of d[g], d[g + 8], in bytes
  const int quad = 8 * place.g + 2 * place.side;  // of d, d, m, m
  const unsigned char* bytes = scales + 4 * place.g + place.side;
  switch (format) {
    case PackedFormat::kQ4_1:
    case PackedFormat::kQ5_1:
      return {HalfAt(scales + quad), HalfAt(scales + quad + 4)};
    case PackedFormat::kQ4_K:
    case PackedFormat::kQ5_K:
      return {HalfAt(header + quad) * static_cast<float>(bytes[0]),
              -(HalfAt(header + quad + 4) * static_cast<float>(bytes[2]))};
    case PackedFormat::kQ6_K:
      return {HalfAt(header + pair) * static_cast<float>(static_cast<int8_t>(bytes[2 * m])), 0.0f};
    default:
      return {HalfAt(scales + pair), 0.0f};
  }
}

TOKEND_DEVICE int ZeroOf(PackedFormat format) {
  switch (format) {
    case PackedFormat::kQ4_0:
      return 8;
    case PackedFormat::kQ5_0:
      return 16;
    case PackedFormat::kQ6_K:
      return 32;
    case PackedFormat::kQ8_0:
      return 128;
    default:
      return 0;
  }
}

// The code of element (m, r, e) of `lane`.
TOKEND_DEVICE int LoadCode(PackedFormat format, const unsigned char* block, int lane, int m, int r,
                           int e) {
  if (format == PackedFormat::kQ8_0) return block[16 * lane + 8 * m + 2 * r + e];
  const PackedLayout layout = LayoutOf(format);
  const uint32_t word = reinterpret_cast<const uint32_t*>(block)[2 * lane + m];
  const int low = static_cast<int>(word >> (4 * (r + 4 * e)) & 15u);
  const unsigned char* behind = block + layout.code_bytes;
  if (layout.high_bit_bytes == 64) {
    return low | (behind[2 * lane + e] >> (4 * m + r) & 1) << 4;
  }
  if (layout.high_bit_bytes == 128) {
    const uint32_t high = reinterpret_cast<const uint32_t*>(behind)[lane];
    return low | static_cast<int>(high >> (2 * (4 * m + r) + 16 * e) & 3u) << 4;
  }
  return low;
}

// Elements (m, 0, 0), (m, 0, 1), (m, 1, 0), (m, 1, 1) of unit `unit`, which are four
// consecutive columns, with the values of ops::DequantizeRowRef.
struct Four {
  float at[4];
};

TOKEND_DEVICE Four LoadFour(const PackedMatrix& matrix, const RowPlace& place, int unit, int m) {
  const PackedFormat format = matrix.format;
  const PackedLayout layout = LayoutOf(format);
  const int block_index = unit / kUnits;
  const unsigned char* record =
      place.tile + static_cast<int64_t>(block_index / layout.record_blocks) * layout.record_bytes();
  const unsigned char* block =
      record + layout.header_bytes + block_index % layout.record_blocks * layout.block_bytes;
  const int lane = 4 * place.g + unit % kUnits;
  const bool pair = format == PackedFormat::kF16Pair;
  const bool half = pair || format == PackedFormat::kF16;
  CodeScale scale = {1.0f, 0.0f};
  if (!half) {
    const unsigned char* scales = block + layout.code_bytes + layout.high_bit_bytes;
    scale = LoadScale(format, record, scales, place, m);
  }
  Four four;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int r = c / 2 * 2 + place.side;
    if (half) {
      const unsigned char* at = block + 512 * m + 16 * lane + 4 * r + 2 * (c % 2);
      four.at[c] = pair ? HalfAt(at) + HalfAt(at + 1024) : HalfAt(at);
    } else {
      const int code = LoadCode(format, block, lane, m, r, c % 2) - ZeroOf(format);
      four.at[c] = static_cast<float>(code) * scale.d + scale.minimum;
    }
  }
  return four;
}

// x = scale * row, or x += row.
TOKEND_DEVICE void PutRow(const PackedMatrix& matrix, int64_t row, float scale, bool add,
                          float* x) {
  const RowPlace place = FindRow(matrix, row);
  const int blocks = (matrix.cols + kBlockCols - 1) / kBlockCols;
  for (int i = static_cast<int>(threadIdx.x); i < blocks * kUnits * 2; i += kThreads) {
    const int unit = i / 2;
    const int m = i % 2;
    const int col = unit / kUnits * kBlockCols + BlockColumn(matrix.format, unit % kUnits, m, 0, 0);
    if (col >= matrix.cols) continue;
    const Four four = LoadFour(matrix, place, unit, m);
#pragma unroll
    for (int c = 0; c < 4; ++c) x[col + c] = add ? x[col + c] + four.at[c] : scale * four.at[c];
  }
}

// Block: one row.
__global__ void EmbedKernel(EmbeddingParams params) {
  AllowNextKernel();
  WaitForPreviousKernel();
  const int row = static_cast<int>(blockIdx.x);
  float* x = params.x + row * params.x_stride;
  int token = params.tokens[row];
  if (token < 0) token = max(0, params.drawn[-1 - token]);
  PutRow(params.table, token, params.scale, false, x);
  if (params.positions.data == nullptr) return;
  __syncthreads();  // the tables' formats may differ, and with them who holds a column
  PutRow(params.positions, params.row_positions[row], 1, true, x);
}

}  // namespace

absl::Status Embed(const EmbeddingParams& params, cudaStream_t stream) {
  if (params.rows == 0) return absl::OkStatus();
  const int cols = params.table.cols;
  const bool positioned = params.positions.data != nullptr;
  if (cols % kUnitCols != 0 || params.table.gated ||
      (positioned && params.positions.cols != cols)) {
    return absl::InvalidArgumentError("Embed: a table or stride of a shape that it does not take");
  }
  LaunchDims dims;
  dims.grid_x = static_cast<unsigned>(params.rows);
  dims.threads = kThreads;
  return Launch("Embed", EmbedKernel, dims, params, stream);
}

}  // namespace tokend::cuda
