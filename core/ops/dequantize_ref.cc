#include <cstring>

#include "core/base/check.h"
#include "core/ops/dequantize.h"
#include "core/ops/half.h"

namespace tokend::ops {
namespace {

using base::WeightType;

float LoadF16(const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  return F16ToF32(half);
}

int Low(uint8_t byte) { return byte & 0xf; }
int High(uint8_t byte) { return byte >> 4; }

void BlockQ4_0(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(Low(block[2 + i]) - 8) * d;
    out[i + 16] = static_cast<float>(High(block[2 + i]) - 8) * d;
  }
}

void BlockQ4_1(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  const float m = LoadF16(block + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(Low(block[4 + i])) * d + m;
    out[i + 16] = static_cast<float>(High(block[4 + i])) * d + m;
  }
}

// Code i of a five-bit block: four bits from `codes`, the fifth from `high`.
int FiveBits(const uint8_t* codes, uint32_t high, int i) {
  const int low = i < 16 ? Low(codes[i]) : High(codes[i - 16]);
  return low | static_cast<int>((high >> i) & 1u) << 4;
}

void BlockQ5_0(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  uint32_t high;
  std::memcpy(&high, block + 2, sizeof(high));
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(FiveBits(block + 6, high, i) - 16) * d;
  }
}

void BlockQ5_1(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  const float m = LoadF16(block + 2);
  uint32_t high;
  std::memcpy(&high, block + 4, sizeof(high));
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(FiveBits(block + 8, high, i)) * d + m;
  }
}

void BlockQ8_0(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
  }
}

// Six-bit scale and minimum of sub-block j of 8: the first four lie in the low
// bits of bytes j and j + 4; the others' low four bits in bytes 8 to 11 and
// their high two in the top bits of the first eight bytes.
void SubBlockScale(const uint8_t* scales, int j, int* scale, int* minimum) {
  if (j < 4) {
    *scale = scales[j] & 63;
    *minimum = scales[j + 4] & 63;
  } else {
    *scale = Low(scales[j + 4]) | (scales[j - 4] >> 6) << 4;
    *minimum = High(scales[j + 4]) | (scales[j] >> 6) << 4;
  }
}

// `high` is null (Q4_K) or holds, for code i, bit `sub-block` of byte i % 32.
void BlockQ45K(const uint8_t* block, const uint8_t* high, const uint8_t* codes, float* out) {
  const float d = LoadF16(block);
  const float dmin = LoadF16(block + 2);
  for (int sub = 0; sub < 8; ++sub) {
    int scale, minimum;
    SubBlockScale(block + 4, sub, &scale, &minimum);
    const float ds = d * static_cast<float>(scale);
    const float dt = dmin * static_cast<float>(minimum);
    const uint8_t* bytes = codes + 32 * (sub / 2);
    for (int i = 0; i < 32; ++i) {
      int code = sub % 2 == 0 ? Low(bytes[i]) : High(bytes[i]);
      if (high != nullptr) code |= ((high[i] >> sub) & 1) << 4;
      out[32 * sub + i] = static_cast<float>(code) * ds - dt;
    }
  }
}

// 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, d. In each
// half of 128 codes, group g of 32 has its nibbles in bytes 32 (g % 2) on, low
// then high, and its bit pair g in byte i of the half's 32.
void BlockQ6K(const uint8_t* block, float* out) {
  const float d = LoadF16(block + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + 64 * half;
    const uint8_t* high = block + 128 + 32 * half;
    const auto* scales = reinterpret_cast<const int8_t*>(block + 192 + 8 * half);
    for (int group = 0; group < 4; ++group) {
      for (int i = 0; i < 32; ++i) {
        const uint8_t byte = low[32 * (group % 2) + i];
        const int nibble = group < 2 ? Low(byte) : High(byte);
        const int code = nibble | ((high[i] >> (2 * group)) & 3) << 4;
        const float ds = d * static_cast<float>(scales[2 * group + i / 16]);
        out[128 * half + 32 * group + i] = static_cast<float>(code - 32) * ds;
      }
    }
  }
}

void Block(WeightType type, const uint8_t* block, float* out) {
  uint16_t half;
  switch (type) {
    case WeightType::kF32:
      std::memcpy(out, block, sizeof(float));
      return;
    case WeightType::kF16:
      *out = LoadF16(block);
      return;
    case WeightType::kBF16:
      std::memcpy(&half, block, sizeof(half));
      *out = Bf16ToF32(half);
      return;
    case WeightType::kQ4_0:
      return BlockQ4_0(block, out);
    case WeightType::kQ4_1:
      return BlockQ4_1(block, out);
    case WeightType::kQ5_0:
      return BlockQ5_0(block, out);
    case WeightType::kQ5_1:
      return BlockQ5_1(block, out);
    case WeightType::kQ8_0:
      return BlockQ8_0(block, out);
    case WeightType::kQ4_K:
      return BlockQ45K(block, nullptr, block + 16, out);
    case WeightType::kQ5_K:
      return BlockQ45K(block, block + 16, block + 48, out);
    case WeightType::kQ6_K:
      return BlockQ6K(block, out);
  }
}

}  // namespace

void DequantizeRowRef(WeightType type, const std::byte* row, absl::Span<float> out) {
  const base::WeightTypeInfo& info = base::GetWeightType(type);
  const auto step = static_cast<size_t>(info.block_elements);
  TOKEND_CHECK(out.size() % step == 0);
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  for (size_t at = 0; at < out.size(); at += step) {
    Block(type, block, out.data() + at);
    block += info.block_bytes;
  }
}

int64_t RowBytes(const Matrix& matrix) {
  const base::WeightTypeInfo& info = base::GetWeightType(matrix.type);
  return matrix.cols / info.block_elements * info.block_bytes;
}

Matrix RowRange(const Matrix& matrix, int64_t first, int64_t rows) {
  TOKEND_CHECK(first >= 0 && rows >= 0 && first + rows <= matrix.rows);
  return {matrix.type, rows, matrix.cols, matrix.data + first * RowBytes(matrix)};
}

}  // namespace tokend::ops
