// Quantises activations; included once by each instruction set's translation
// unit, whose flags vectorise the loops; the reductions are written out in S:
//   Sum16(p)              sum of 16 int32
//   LargestMagnitude32(p) largest of the bits of |p[i]|, as an integer, i < 32
#ifndef TOKEND_CORE_CPU_QUANTIZE_IMPL_H_
#define TOKEND_CORE_CPU_QUANTIZE_IMPL_H_

#include <cstdint>
#include <cstring>

#include "core/cpu/activation_blocks.h"

namespace tokend::cpu {

template <class S>
struct Quantizer {
  static constexpr uint32_t kInfinityBits = 0x7f800000;
  static constexpr uint32_t kTinyBits = 0x0d800000;  // 2^-100
  // Adding 1.5 * 2^23 rounds to an integer (to nearest, ties to even) in the low
  // mantissa bits.
  static constexpr float kRound = 12582912.0f;
  static constexpr int32_t kRoundBits = 0x4b400000;

  static float FromBits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  // Writes round(x / d) for d = max|x| / `levels` and returns d: 0 for a tiny
  // block, NaN for one that is not finite, both with all codes 0.
  static float Round(const float* x, float levels, int32_t* codes) {
    const auto largest = static_cast<uint32_t>(S::LargestMagnitude32(x));
    if (largest < kTinyBits || largest >= kInfinityBits) {
      std::memset(codes, 0, kBlock * sizeof(codes[0]));
      return largest < kTinyBits ? 0.0f : FromBits(0x7fc00000);
    }
    const float max = FromBits(largest);
    const float inverse = levels / max;
    float rounded[kBlock];
    for (int i = 0; i < kBlock; ++i) rounded[i] = x[i] * inverse + kRound;
    std::memcpy(codes, rounded, sizeof(rounded));
    for (int i = 0; i < kBlock; ++i) codes[i] -= kRoundBits;
    return max / levels;
  }

  static void Block8(const float* x, ActivationBlock8* out) {
    int32_t codes[kBlock];
    out->d = Round(x, 127.0f, codes);
    for (int i = 0; i < kBlock; ++i) out->q[i] = static_cast<int8_t>(codes[i]);
    SetSums(codes, -128, out);
  }

  static void Block16(const float* x, ActivationBlock16* out) {
    int32_t codes[kBlock];
    out->d = Round(x, 16256.0f, codes);
    int32_t high[kBlock];
    for (int i = 0; i < kBlock; ++i) high[i] = (codes[i] + 64) >> 7;
    for (int i = 0; i < kBlock; ++i) out->high[i] = static_cast<int8_t>(high[i]);
    for (int i = 0; i < kBlock; ++i) out->low[i] = static_cast<int8_t>(codes[i] - high[i] * 128);
    SetSums(codes, -1, out);
  }

  template <class Block>
  static void SetSums(const int32_t* codes, int32_t factor, Block* out) {
    const int32_t sums[2] = {S::Sum16(codes), S::Sum16(codes + 16)};
    const int32_t sum = sums[0] + sums[1];
    out->d_sum = out->d * static_cast<float>(sum);
    out->start8 = -8 * sum;
    out->start128 = factor * sum;
    out->start128_half[0] = factor * sums[0];
    out->start128_half[1] = factor * sums[1];
    out->unused[0] = out->unused[1] = 0;
  }

  template <class Block, void (*kQuantize)(const float*, Block*)>
  static void Row(const float* x, int64_t count, Block* out) {
    for (; count >= kBlock; count -= kBlock, x += kBlock, ++out) kQuantize(x, out);
    if (count == 0) return;
    float padded[kBlock] = {};
    std::memcpy(padded, x, static_cast<size_t>(count) * sizeof(float));
    kQuantize(padded, out);
  }

  static void Row8(const float* x, int64_t count, ActivationBlock8* out) {
    Row<ActivationBlock8, Block8>(x, count, out);
  }
  static void Row16(const float* x, int64_t count, ActivationBlock16* out) {
    Row<ActivationBlock16, Block16>(x, count, out);
  }

 private:
  static constexpr int kBlock = 32;
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_QUANTIZE_IMPL_H_
