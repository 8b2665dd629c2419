// Exact conversions between binary16, bfloat16 and binary32.
#ifndef TOKEND_CORE_OPS_HALF_H_
#define TOKEND_CORE_OPS_HALF_H_

#include <cstdint>
#include <cstring>

namespace tokend::ops {

inline uint32_t FloatBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Every binary16 value is a binary32 value: exact, subnormals, Inf and NaN
// included.
inline float F16ToF32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) {
    // Subnormal: fraction * 2^-24, and both factors are exact.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return FloatFromBits(sign | FloatBits(magnitude));
  }
  const uint32_t widened = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
  return FloatFromBits(sign | (widened << 23) | (fraction << 13));
}

// Rounds to nearest, ties to even; beyond 65504 to Inf; NaN stays (quiet) NaN.
inline uint16_t F32ToF16(float value) {
  const uint32_t bits = FloatBits(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  // 65520 is half way between 65504 and what would be 65536.
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below 2^-14: let the FPU round at the place of 2^-24 (ulp of 0.5f is 2^-24).
    const float rounded = FloatFromBits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (FloatBits(rounded) - FloatBits(0.5f)));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude + 0xfffu + odd;
  return static_cast<uint16_t>(sign | ((rounded - ((127u - 15u) << 23)) >> 13));
}

// Exact.
inline float Bf16ToF32(uint16_t half) { return FloatFromBits(static_cast<uint32_t>(half) << 16); }

// Rounds to nearest, ties to even; NaN stays (quiet) NaN.
inline uint16_t F32ToBf16(float value) {
  const uint32_t bits = FloatBits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_HALF_H_
