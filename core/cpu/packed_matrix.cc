#include "core/cpu/packed_matrix.h"

#include <cstring>

#include "core/base/check.h"
#include "core/ops/unpack_blocks.h"

namespace tokend::cpu {
namespace {

using base::WeightType;

constexpr int kCodes = kPanelOutputs * kBlockInputs;  // of a block of a panel
constexpr int kSuperBlock = 256 / kBlockInputs;       // blocks per super-block of the K types

// Bytes of `blocks` blocks of a panel.
int64_t PanelBytes(WeightType type, int64_t blocks) {
  const int64_t super_blocks = (blocks + kSuperBlock - 1) / kSuperBlock;
  switch (type) {
    case WeightType::kF32:
      return blocks * kCodes * 4;
    case WeightType::kF16:
    case WeightType::kBF16:
      return blocks * kCodes * 2;
    case WeightType::kQ4_0:
      return blocks * (kCodes / 2 + 64);
    case WeightType::kQ4_1:
      return blocks * (kCodes / 2 + 128);
    case WeightType::kQ5_0:
    case WeightType::kQ8_0:
      return blocks * (kCodes + 64);
    case WeightType::kQ5_1:
      return blocks * (kCodes + 128);
    case WeightType::kQ4_K:
      return super_blocks * (128 + kSuperBlock * (kCodes / 2 + 64));
    case WeightType::kQ5_K:
      return super_blocks * (128 + kSuperBlock * (kCodes + 64));
    case WeightType::kQ6_K:
      return super_blocks * (64 + kSuperBlock * (kCodes + 64));
  }
  return 0;
}

// Where output `o` of a panel puts the code of input `k` of a block.
int CodeIndex(int o, int k) { return k / 4 * (kPanelOutputs * 4) + o * 4 + k % 4; }

void PlaceBytes(const uint8_t* codes, int bias, int o, uint8_t* block) {
  for (int k = 0; k < kBlockInputs; ++k) {
    block[CodeIndex(o, k)] = static_cast<uint8_t>(codes[k] + bias);
  }
}

void PlaceNibbles(const uint8_t* codes, int o, uint8_t* block) {
  for (int k = 0; k < kBlockInputs / 2; ++k) {
    block[CodeIndex(o, k)] = static_cast<uint8_t>(codes[k] | codes[k + 16] << 4);
  }
}

void PlaceHalf(uint16_t value, int index, uint8_t* at) { std::memcpy(at + 2 * index, &value, 2); }

// Types with blocks of 32: output `o` of a panel, whose row starts at `source`.
void PackSimpleRow(WeightType type, const uint8_t* source, int64_t blocks, int o, uint8_t* panel) {
  const int64_t source_bytes = base::GetWeightType(type).block_bytes;
  const int64_t block_bytes = PanelBytes(type, 1);
  const bool nibbles = type == WeightType::kQ4_0 || type == WeightType::kQ4_1;
  // Codes of all offset types count from 128.
  const int bias = type == WeightType::kQ5_0 ? 112 : 0;
  for (int64_t b = 0; b < blocks; ++b) {
    const ops::SimpleBlock block = ops::UnpackSimpleBlock(type, source + b * source_bytes);
    uint8_t* at = panel + b * block_bytes;
    if (nibbles) {
      PlaceNibbles(block.codes, o, at);
    } else {
      PlaceBytes(block.codes, bias, o, at);
    }
    uint8_t* scales = at + (nibbles ? kCodes / 2 : kCodes);
    PlaceHalf(block.scale, o, scales);
    if (block.has_minimum) PlaceHalf(block.minimum, o, scales + 2 * kPanelOutputs);
  }
}

void PackSuperRow(WeightType type, const uint8_t* source, int64_t blocks, int o, uint8_t* panel) {
  const int64_t source_bytes = base::GetWeightType(type).block_bytes;
  const int64_t super_bytes = PanelBytes(type, kSuperBlock);
  const bool is_q6 = type == WeightType::kQ6_K;
  const bool nibbles = type == WeightType::kQ4_K;
  const int code_bytes = nibbles ? kCodes / 2 : kCodes;
  for (int64_t s = 0; s < blocks / kSuperBlock; ++s) {
    const ops::SuperBlock block = ops::UnpackSuperBlock(type, source + s * source_bytes);
    uint8_t* at = panel + s * super_bytes;
    PlaceHalf(block.scale, o, at);
    at += 2 * kPanelOutputs;
    if (!is_q6) {
      // The kernels add minima.
      PlaceHalf(static_cast<uint16_t>(block.minimum ^ 0x8000), o, at);
      at += 2 * kPanelOutputs;
    }
    for (int j = 0; j < kSuperBlock; ++j, at += code_bytes + 64) {
      if (nibbles) {
        PlaceNibbles(block.codes + j * kBlockInputs, o, at);
      } else {
        PlaceBytes(block.codes + j * kBlockInputs, is_q6 ? 96 : 0, o, at);
      }
      uint8_t* scales = at + code_bytes;
      scales[o] = is_q6 ? block.scales[2 * j] : block.scales[j];
      scales[kPanelOutputs + o] = is_q6 ? block.scales[2 * j + 1] : block.minima[j];
    }
  }
}

template <typename T>
void PackFloatRow(const uint8_t* source, int64_t cols, int o, uint8_t* panel) {
  for (int64_t k = 0; k < cols; ++k) {
    std::memcpy(panel + (k * kPanelOutputs + o) * static_cast<int64_t>(sizeof(T)),
                source + k * static_cast<int64_t>(sizeof(T)), sizeof(T));
  }
}

void PackRow(WeightType type, const uint8_t* source, int64_t cols, int o, uint8_t* panel) {
  switch (type) {
    case WeightType::kF32:
      return PackFloatRow<uint32_t>(source, cols, o, panel);
    case WeightType::kF16:
    case WeightType::kBF16:
      return PackFloatRow<uint16_t>(source, cols, o, panel);
    case WeightType::kQ4_0:
    case WeightType::kQ4_1:
    case WeightType::kQ5_0:
    case WeightType::kQ5_1:
    case WeightType::kQ8_0:
      return PackSimpleRow(type, source, cols / kBlockInputs, o, panel);
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
    case WeightType::kQ6_K:
      return PackSuperRow(type, source, cols / kBlockInputs, o, panel);
  }
}

}  // namespace

int64_t PackedMatrix::PackedBytes(const ops::Matrix& source) {
  const int64_t panels = (source.rows + kPanelOutputs - 1) / kPanelOutputs;
  const int64_t blocks = (source.cols + kBlockInputs - 1) / kBlockInputs;
  return panels * PanelBytes(source.type, blocks);
}

PackedMatrix::PackedMatrix(const ops::Matrix& source, std::byte* memory)
    : type_(source.type), rows_(source.rows), cols_(source.cols), data_(memory) {
  TOKEND_CHECK(source.cols % base::GetWeightType(source.type).block_elements == 0);
  TOKEND_CHECK(reinterpret_cast<uintptr_t>(memory) % 64 == 0);
  panel_bytes_ = PanelBytes(type_, blocks());
}

void PackedMatrix::PackPanels(const ops::Matrix& source, int64_t begin, int64_t end) {
  TOKEND_CHECK(source.type == type_ && source.rows == rows_ && source.cols == cols_);
  TOKEND_CHECK(0 <= begin && end <= panels());
  const base::WeightTypeInfo& info = base::GetWeightType(type_);
  const int64_t row_bytes = cols_ / info.block_elements * info.block_bytes;
  const auto* rows = reinterpret_cast<const uint8_t*>(source.data);
  for (int64_t p = begin; p < end; ++p) {
    auto* panel = reinterpret_cast<uint8_t*>(data_ + p * panel_bytes_);
    std::memset(panel, 0, static_cast<size_t>(panel_bytes_));
    for (int o = 0; o < kPanelOutputs && p * kPanelOutputs + o < rows_; ++o) {
      PackRow(type_, rows + (p * kPanelOutputs + o) * row_bytes, cols_, o, panel);
    }
  }
}

base::Activations PackedMatrix::ActivationsFor(base::Activations wanted) const {
  switch (type_) {
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kBF16:
      return base::Activations::kF32;
    default:
      return wanted;
  }
}

}  // namespace tokend::cpu
