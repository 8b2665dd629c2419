#include "cuda_kernels/backend/packed_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/ops/dequantize.h"
#include "core/ops/half.h"
#include "core/ops/unpack_blocks.h"
#include "cuda_kernels/kernels/packed_format.h"

namespace tokend::cuda {
namespace {

using base::WeightType;

constexpr int kAlignment = 128;
constexpr float kLargestHalf = 65504;

template <typename T>
void Put(T value, uint8_t* at) {
  std::memcpy(at, &value, sizeof(value));
}

uint32_t Load32(const void* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

template <typename T>
void OrInto(T bits, uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  Put(static_cast<T>(value | bits), at);
}

// Of four consecutive k, which register 2 i and element e take as 2 i + e, bits
// `mask` of each byte to bit `i_step` i + `e_step` e.
template <int i_step, int e_step>
uint32_t Spread(uint32_t four, uint32_t mask) {
  return (four & mask) | (four >> 8 & mask) << e_step | (four >> 16 & mask) << i_step |
         (four >> 24 & mask) << (i_step + e_step);
}

// One tile that is being filled, an output at a time.
class TileWriter {
 public:
  TileWriter(PackedFormat format, uint8_t* tile)
      : format_(format), layout_(LayoutOf(format)), tile_(tile) {}

  // 32 values of block `index`, f16.
  void PutHalves(int output, int64_t index, int plane, const uint16_t* halves) const {
    uint8_t* at =
        tile_ + index * layout_.block_bytes + 1024 * plane + 64 * (output % 8) + 4 * (output / 8);
    for (int t = 0; t < 4; ++t) {
      for (int m = 0; m < 2; ++m) {
        for (int i = 0; i < 2; ++i) {
          Put(Load32(halves + BlockColumn(format_, t, m, i, 0)), at + 512 * m + 16 * t + 8 * i);
        }
      }
    }
  }

  void PutSimpleBlock(int output, int64_t index, const ops::SimpleBlock& block) const {
    uint8_t* at = tile_ + index * layout_.block_bytes;
    PutCodes(output, block.codes, at);
    uint8_t* scales = at + layout_.code_bytes + layout_.high_bit_bytes;
    const int g = output % 8;
    const int side = 2 * (output / 8);
    if (block.has_minimum) {
      Put(block.scale, scales + 8 * g + side);
      Put(block.minimum, scales + 8 * g + 4 + side);
    } else {
      Put(block.scale, scales + 4 * g + side);
    }
  }

  void PutSuperBlock(int output, int64_t index, const ops::SuperBlock& block) const {
    uint8_t* record = tile_ + index * layout_.record_bytes();
    const bool sixteens = format_ == PackedFormat::kQ6_K;
    const int g = output % 8;
    const int side = output / 8;
    if (sixteens) {
      Put(block.scale, record + 4 * g + 2 * side);
    } else {
      Put(block.scale, record + 8 * g + 2 * side);
      Put(block.minimum, record + 8 * g + 4 + 2 * side);
    }
    for (int j = 0; j < layout_.record_blocks; ++j) {
      uint8_t* at = record + layout_.header_bytes + j * layout_.block_bytes;
      PutCodes(output, block.codes + j * kBlockCols, at);
      uint8_t* scales = at + layout_.code_bytes + layout_.high_bit_bytes + 4 * g + side;
      scales[0] = sixteens ? block.scales[2 * j] : block.scales[j];
      scales[2] = sixteens ? block.scales[2 * j + 1] : block.minima[j];
    }
  }

 private:
  // The block's bytes are zero before the first output.
  void PutCodes(int output, const uint8_t* codes, uint8_t* block) const {
    uint8_t* behind = block + layout_.code_bytes;
    const int side = output / 8;
    for (int t = 0; t < 4; ++t) {
      const int lane = output % 8 * 4 + t;
      for (int m = 0; m < 2; ++m) {
        const uint32_t four = Load32(codes + BlockColumn(format_, t, m, 0, 0));
        if (format_ == PackedFormat::kQ8_0) {
          uint8_t* at = block + 16 * lane + 8 * m + 2 * side;
          Put(static_cast<uint16_t>(four), at);
          Put(static_cast<uint16_t>(four >> 16), at + 4);
          continue;
        }
        OrInto(Spread<8, 16>(four, 15) << (4 * side), block + 8 * lane + 4 * m);
        if (layout_.high_bit_bytes == 64) {
          const uint32_t bits = Spread<2, 8>(four >> 4 & 0x01010101u, 1) << (4 * m + side);
          OrInto(static_cast<uint16_t>(bits), behind + 2 * lane);
        } else if (layout_.high_bit_bytes == 128) {
          OrInto(Spread<4, 16>(four >> 4 & 0x03030303u, 3) << (8 * m + 2 * side),
                 behind + 4 * lane);
        }
      }
    }
  }

  PackedFormat format_;
  PackedLayout layout_;
  uint8_t* tile_;
};

absl::Status DoesNotFit(absl::string_view name, int64_t row, int64_t col, float value) {
  return absl::FailedPreconditionError(
      absl::StrCat("weight matrix '", name, "': element [", row, ", ", col, "] is ", value,
                   ", which the CUDA backend cannot hold as f16 (at most 65504)"));
}

// One row of W into output `output` of a tile.
class RowPacker {
 public:
  RowPacker(const ops::Matrix& source, bool pair, absl::string_view name)
      : source_(source), name_(name), row_bytes_(ops::RowBytes(source)) {
    switch (source.type) {
      case WeightType::kF32:
      case WeightType::kF16:
      case WeightType::kBF16:
        pair_ = pair && source.type != WeightType::kF16;
        values_.resize(static_cast<size_t>(source.cols));
        break;
      default:
        break;
    }
  }

  absl::Status Pack(int64_t row, int output, const TileWriter& tile) {
    const std::byte* bytes = source_.data + row * row_bytes_;
    const base::WeightTypeInfo& info = base::GetWeightType(source_.type);
    const auto* blocks = reinterpret_cast<const uint8_t*>(bytes);
    switch (source_.type) {
      case WeightType::kF16:
        PackHalves(bytes, output, tile);
        return absl::OkStatus();
      case WeightType::kF32:
      case WeightType::kBF16:
        ops::DequantizeRowRef(source_.type, bytes, absl::MakeSpan(values_));
        return PackValues(row, output, tile);
      case WeightType::kQ4_K:
      case WeightType::kQ5_K:
      case WeightType::kQ6_K:
        for (int64_t b = 0; b < source_.cols / info.block_elements; ++b) {
          tile.PutSuperBlock(output, b,
                             ops::UnpackSuperBlock(source_.type, blocks + b * info.block_bytes));
        }
        return absl::OkStatus();
      default:
        for (int64_t b = 0; b < source_.cols / info.block_elements; ++b) {
          tile.PutSimpleBlock(output, b,
                              ops::UnpackSimpleBlock(source_.type, blocks + b * info.block_bytes));
        }
        return absl::OkStatus();
    }
  }

 private:
  // What the file's own f16 say is held as it is, Inf and NaN too.
  void PackHalves(const std::byte* row, int output, const TileWriter& tile) const {
    for (int64_t k = 0; k < source_.cols; k += kBlockCols) {
      uint16_t halves[kBlockCols] = {};
      const int64_t count = std::min<int64_t>(kBlockCols, source_.cols - k);
      std::memcpy(halves, row + 2 * k, static_cast<size_t>(2 * count));
      tile.PutHalves(output, k / kBlockCols, 0, halves);
    }
  }

  absl::Status PackValues(int64_t row, int output, const TileWriter& tile) const {
    for (int64_t k = 0; k < source_.cols; k += kBlockCols) {
      uint16_t hi[kBlockCols] = {};
      uint16_t lo[kBlockCols] = {};
      for (int64_t i = 0; i < std::min<int64_t>(kBlockCols, source_.cols - k); ++i) {
        const float value = values_[static_cast<size_t>(k + i)];
        if (!(std::fabs(value) <= kLargestHalf)) return DoesNotFit(name_, row, k + i, value);
        hi[i] = ops::F32ToF16(value);
        lo[i] = ops::F32ToF16(value - ops::F16ToF32(hi[i]));
      }
      tile.PutHalves(output, k / kBlockCols, 0, hi);
      if (pair_) tile.PutHalves(output, k / kBlockCols, 1, lo);
    }
    return absl::OkStatus();
  }

  const ops::Matrix& source_;
  absl::string_view name_;
  int64_t row_bytes_;
  bool pair_ = false;
  std::vector<float> values_;
};

int64_t TileBytes(const PackedMatrix& matrix) {
  return int64_t{Records(matrix.format, matrix.cols)} * LayoutOf(matrix.format).record_bytes();
}

// `first` fills outputs [0, 16 / n) of each tile, `second`, of a gated pair, the rest.
absl::Status Pack(const ops::Matrix& first, const ops::Matrix* second, bool pair,
                  absl::string_view name, std::byte* out) {
  const PackedMatrix view = PackedView(first, pair, second != nullptr, nullptr);
  const int64_t tile_bytes = TileBytes(view);
  const int64_t bytes = PackedBytes(first, pair, second != nullptr);
  std::memset(out, 0, static_cast<size_t>(bytes));
  const int rows_of_each = second == nullptr ? kTileOutputs : kTileOutputs / 2;
  RowPacker packers[2] = {{first, pair, name}, {second == nullptr ? first : *second, pair, name}};
  for (int64_t tile = 0; tile < Tiles(view); ++tile) {
    const TileWriter writer(view.format, reinterpret_cast<uint8_t*>(out + tile * tile_bytes));
    for (int output = 0; output < kTileOutputs; ++output) {
      const int64_t row = tile * rows_of_each + output % rows_of_each;
      if (row >= first.rows) continue;
      TOKEND_RETURN_IF_ERROR(packers[output / rows_of_each].Pack(row, output, writer));
    }
  }
  return absl::OkStatus();
}

}  // namespace

PackedFormat PackedFormatFor(WeightType type, bool pair) {
  switch (type) {
    case WeightType::kF16:
      return PackedFormat::kF16;
    case WeightType::kF32:
    case WeightType::kBF16:
      return pair ? PackedFormat::kF16Pair : PackedFormat::kF16;
    case WeightType::kQ4_0:
      return PackedFormat::kQ4_0;
    case WeightType::kQ4_1:
      return PackedFormat::kQ4_1;
    case WeightType::kQ5_0:
      return PackedFormat::kQ5_0;
    case WeightType::kQ5_1:
      return PackedFormat::kQ5_1;
    case WeightType::kQ8_0:
      return PackedFormat::kQ8_0;
    case WeightType::kQ4_K:
      return PackedFormat::kQ4_K;
    case WeightType::kQ5_K:
      return PackedFormat::kQ5_K;
    case WeightType::kQ6_K:
      return PackedFormat::kQ6_K;
  }
  return PackedFormat::kF16;
}

PackedMatrix PackedView(const ops::Matrix& source, bool pair, bool gated,
                        const unsigned char* data) {
  PackedMatrix view;
  view.format = PackedFormatFor(source.type, pair);
  view.gated = gated;
  view.outputs = static_cast<int>(source.rows);
  view.cols = static_cast<int>(source.cols);
  view.data = data;
  return view;
}

int64_t PackedBytes(const ops::Matrix& source, bool pair, bool gated) {
  const PackedMatrix view = PackedView(source, pair, gated, nullptr);
  const int64_t bytes = Tiles(view) * TileBytes(view);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

absl::Status PackWeights(const ops::Matrix& source, bool pair, absl::string_view name,
                         std::byte* out) {
  return Pack(source, nullptr, pair, name, out);
}

absl::Status PackGatedWeights(const ops::Matrix& gate, const ops::Matrix& up, bool pair,
                              absl::string_view name, std::byte* out) {
  TOKEND_CHECK(gate.type == up.type && gate.rows == up.rows && gate.cols == up.cols);
  return Pack(gate, &up, pair, name, out);
}

}  // namespace tokend::cuda
