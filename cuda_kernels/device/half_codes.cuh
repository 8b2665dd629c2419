// Small unsigned codes to f16 without a conversion: 0x6400 is 1024 in f16, with a last
// place of 1, so that or-ing a code below 1024 into it adds the code.
#ifndef TOKEND_CUDA_KERNELS_DEVICE_HALF_CODES_CUH_
#define TOKEND_CUDA_KERNELS_DEVICE_HALF_CODES_CUH_

#include <cstring>

#include "cuda_kernels/device/platform.cuh"

namespace tokend::cuda {

inline constexpr uint32_t kTwo1024 = 0x64006400u;

TOKEND_DEVICE __half2 HalvesFromBits(uint32_t bits) {
  __half2 halves;
  memcpy(static_cast<void*>(&halves), &bits, sizeof(bits));
  return halves;
}

TOKEND_DEVICE uint32_t BitsFromHalves(__half2 halves) {
  uint32_t bits;
  memcpy(&bits, &halves, sizeof(bits));
  return bits;
}

// (bits & kMask) | base in one instruction: left to itself the compiler makes two of it,
// as it has no instruction with two constants.
template <uint32_t kMask>
TOKEND_DEVICE uint32_t MaskAndOr(uint32_t bits, uint32_t base) {
#ifdef TOKEND_SIMT
  return (bits & kMask) | base;
#else
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(bits), "n"(kMask), "r"(base));
  return result;
#endif
}

// Byte i of the result is byte `selector >> 4 i & 7` of the eight bytes of low, high.
TOKEND_DEVICE uint32_t SelectBytes(uint32_t low, uint32_t high, uint32_t selector) {
#ifdef TOKEND_SIMT
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> (4 * i) & 7u;
    result |= static_cast<uint32_t>(bytes >> (8 * from) & 0xffu) << (8 * i);
  }
  return result;
#else
  return __byte_perm(low, high, selector);
#endif
}

// 2^23 + byte `index` of `bytes`: f32 has a last place of 1 there.
TOKEND_DEVICE float FloatFromByte(uint32_t bytes, int index) {
  const uint32_t bits = SelectBytes(bytes, 0x4b000000u, 0x7440u | static_cast<uint32_t>(index));
  float value;
  memcpy(&value, &bits, sizeof(bits));
  return value;
}

// Both halves of `bits` are 1024 + code: code - zero, exact.
template <int kZero>
TOKEND_DEVICE uint32_t LowCodes(uint32_t bits) {
  constexpr uint32_t kOffset = 0x6400u + kZero;
  return BitsFromHalves(__hsub2(HalvesFromBits(bits), HalvesFromBits(kOffset << 16 | kOffset)));
}

// Both halves of `bits` are 1024 + 16 code: code - zero, exact.
template <int kZero>
TOKEND_DEVICE uint32_t HighCodes(uint32_t bits) {
  constexpr uint32_t kSixteenth = 0x2c002c00u;
  constexpr uint32_t kOffset = 0x5400u + 16 * kZero;  // 64 + zero; a last place is 1/16
  static_assert(kZero < 64);
#ifdef TOKEND_SIMT
  const __half2 scaled = __hmul2(HalvesFromBits(bits), HalvesFromBits(kSixteenth));
  return BitsFromHalves(__hsub2(scaled, HalvesFromBits(kOffset << 16 | kOffset)));
#else
  constexpr uint32_t kMinus = kOffset | 0x8000u;
  return BitsFromHalves(__hfma2(HalvesFromBits(bits), HalvesFromBits(kSixteenth),
                                HalvesFromBits(kMinus << 16 | kMinus)));
#endif
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_DEVICE_HALF_CODES_CUH_
