#include "core/ops/unpack_blocks.h"

#include <cstring>

#include "core/base/check.h"

namespace tokend::ops {
namespace {

using base::WeightType;

uint16_t LoadHalf(const uint8_t* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// Byte i holds code i in its low and code i + 16 in its high nibble.
void SplitNibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = bytes[i] & 15;
    codes[i + 16] = bytes[i] >> 4;
  }
}

// Bit i of `bits` is the fifth bit of code i.
void AddFifthBits(const uint8_t* bits, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] | (bits[i / 8] >> (i % 8) & 1) << 4);
  }
}

// 8 scales and 8 minima of 6 bits in 12 bytes: the first four of each in the low
// bits of bytes 0-3 and 4-7; of the others the low four bits in bytes 8-11 and
// the high two in the high bits of bytes 0-7.
void SplitScales(const uint8_t* packed, uint8_t* scales, uint8_t* minima) {
  for (int i = 0; i < 4; ++i) {
    scales[i] = packed[i] & 63;
    minima[i] = packed[i + 4] & 63;
    scales[i + 4] = static_cast<uint8_t>((packed[i + 8] & 15) | packed[i] >> 6 << 4);
    minima[i + 4] = static_cast<uint8_t>(packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4);
  }
}

// 32 bytes hold 64 codes: low nibbles first, then high ones.
void SplitKNibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 256; ++i) {
    const uint8_t byte = bytes[i / 64 * 32 + i % 32];
    codes[i] = i % 64 < 32 ? byte & 15 : byte >> 4;
  }
}

// ql: 2 x 64 bytes of low nibbles, qh: 2 x 32 bytes of high bit pairs.
void SplitQ6(const uint8_t* ql, const uint8_t* qh, uint8_t* codes) {
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const uint8_t low = ql[half * 64 + i % 64];
    const uint8_t high = qh[half * 32 + i % 32];
    codes[i] = static_cast<uint8_t>((quarter < 2 ? low & 15 : low >> 4) |
                                    (high >> (2 * quarter) & 3) << 4);
  }
}

}  // namespace

SimpleBlock UnpackSimpleBlock(WeightType type, const uint8_t* block) {
  SimpleBlock result;
  result.scale = LoadHalf(block);
  result.has_minimum = type == WeightType::kQ4_1 || type == WeightType::kQ5_1;
  if (result.has_minimum) result.minimum = LoadHalf(block + 2);
  const uint8_t* rest = block + (result.has_minimum ? 4 : 2);
  switch (type) {
    case WeightType::kQ4_0:
    case WeightType::kQ4_1:
      SplitNibbles(rest, result.codes);
      break;
    case WeightType::kQ5_0:
    case WeightType::kQ5_1:
      SplitNibbles(rest + 4, result.codes);
      AddFifthBits(rest, result.codes);
      break;
    case WeightType::kQ8_0:
      for (int i = 0; i < 32; ++i) result.codes[i] = rest[i] ^ 0x80;
      break;
    default:
      TOKEND_CHECK(false);
  }
  return result;
}

SuperBlock UnpackSuperBlock(WeightType type, const uint8_t* block) {
  SuperBlock result;
  if (type == WeightType::kQ6_K) {
    SplitQ6(block, block + 128, result.codes);
    std::memcpy(result.scales, block + 192, 16);
    result.scale = LoadHalf(block + 208);
    return result;
  }
  TOKEND_CHECK(type == WeightType::kQ4_K || type == WeightType::kQ5_K);
  result.scale = LoadHalf(block);
  result.minimum = LoadHalf(block + 2);
  SplitScales(block + 4, result.scales, result.minima);
  const uint8_t* rest = block + 16;
  if (type == WeightType::kQ4_K) {
    SplitKNibbles(rest, result.codes);
    return result;
  }
  SplitKNibbles(rest + 32, result.codes);
  for (int i = 0; i < 256; ++i) {
    result.codes[i] = static_cast<uint8_t>(result.codes[i] | (rest[i % 32] >> (i / 32) & 1) << 4);
  }
  return result;
}

}  // namespace tokend::ops
