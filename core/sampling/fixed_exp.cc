#include "core/sampling/fixed_exp.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace tokend::sampling {
namespace {

constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
// ln 2 in two parts: the product of the first, which has 32 significant bits,
// with a whole number below 2^11 is exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
// Adding and taking away 1.5 * 2^52 rounds to the nearest whole number, which
// is then also in the low bits of the sum.
constexpr double kRound = 0x1.8p52;

uint64_t Bits(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

double FromBits(uint64_t bits) {
  double x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// exp(x) for x in [-700, 0], without a branch.
inline double ExpInRange(double x) {
  const double shifted = x * kInverseLn2 + kRound;
  const double n = shifted - kRound;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double p = 1.0 / 6227020800;  // 1 / 13!
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1;
  p = p * r + 1;
  // p is in [0.7, 1.42]: adding n to its exponent cannot leave the normal range.
  return FromBits(Bits(p) + (Bits(shifted) << 52));
}

// For x in [kLeastExponent, 0], without a branch: adding 2^52 leaves the rounded
// value in the low bits.
inline uint64_t WeightInRange(double x) {
  return Bits(ExpInRange(x) * static_cast<double>(kOne) + 0x1p52) - Bits(0x1p52);
}

}  // namespace

double Exp(double x) { return x < -700 ? 0 : ExpInRange(x); }

uint64_t Weight(double x) { return WeightInRange(x < kLeastExponent ? kLeastExponent : x); }

uint64_t SumWeights(absl::Span<const float> logits, float max, double temperature) {
  const double top = max;
  const float* data = logits.data();
  uint64_t sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double x = (static_cast<double>(data[i]) - top) / temperature;
    sum += WeightInRange(x < kLeastExponent ? kLeastExponent : x);
  }
  return sum;
}

double SumExp(absl::Span<const float> logits, float max) {
  constexpr size_t kBlock = 64;
  std::array<double, kBlock> values;
  double sum = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t count = logits.size() - begin < kBlock ? logits.size() - begin : kBlock;
    const float* block = logits.data() + begin;
    for (size_t i = 0; i < count; ++i) {
      const double x = static_cast<double>(block[i]) - static_cast<double>(max);
      values[i] = ExpInRange(x < -700 ? -700 : x);  // exp(-700) vanishes beside 1
    }
    for (size_t i = 0; i < count; ++i) sum += values[i];
  }
  return sum;
}

}  // namespace tokend::sampling
