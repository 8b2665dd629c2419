// The arithmetic of sampling, defined to the bit so that every device draws the same
// token. constexpr, and so usable on a device; nothing here may be contracted.
#ifndef TOKEND_CORE_OPS_SAMPLING_MATH_H_
#define TOKEND_CORE_OPS_SAMPLING_MATH_H_

#include <bit>
#include <cstdint>
#include <limits>

namespace tokend::ops {

// ---- Logits ----

// Of a forbidden token.
inline constexpr float kForbiddenLogit = -std::numeric_limits<float>::infinity();
// Of the logit_bias that forbids.
inline constexpr float kForbiddingBias = -100;

// An integer that orders as finite floats do, and both zeros alike. Minus
// infinity, which marks a forbidden token, comes below all.
constexpr int32_t OrderKey(float logit) {
  const auto bits = std::bit_cast<int32_t>(logit);
  // The bits of negative floats, less the sign, grow downwards.
  return bits < 0 ? INT32_MIN - bits : bits;
}
inline constexpr int32_t kForbiddenKey = -0x7f800000;

constexpr float LogitOfKey(int32_t key) {
  return std::bit_cast<float>(key < 0 ? INT32_MIN - key : key);
}

// A number that grows in the order (logit ascending, id descending). High half:
// the key, shifted to unsigned. Low half: the id's complement.
constexpr uint64_t OrderOf(int32_t key, int32_t id) {
  const uint64_t high = static_cast<uint32_t>(key) ^ 0x80000000u;
  return high << 32 | static_cast<uint32_t>(~static_cast<uint32_t>(id));
}
constexpr int32_t KeyOfOrder(uint64_t order) {
  return static_cast<int32_t>(static_cast<uint32_t>(order >> 32) ^ 0x80000000u);
}
constexpr int32_t IdOfOrder(uint64_t order) {
  return static_cast<int32_t>(~static_cast<uint32_t>(order));
}

constexpr float KeepFinite(float logit) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return logit < -kMax ? -kMax : logit > kMax ? kMax : logit;
}

// A logit after its token's bias; kForbiddenLogit: forbidden.
constexpr float ApplyBias(float logit, float bias) {
  return bias <= kForbiddingBias ? kForbiddenLogit : KeepFinite(logit + bias);
}

// After the penalty of a token in the window.
constexpr float ApplyRepetition(float logit, float penalty) {
  return KeepFinite(logit > 0 ? logit / penalty : logit * penalty);
}

// After the penalties of a token that stands `count` times in the output.
constexpr float ApplyOutputPenalties(float logit, float frequency, float presence, int32_t count) {
  logit = logit - frequency * static_cast<float>(count);
  return KeepFinite(logit - presence);
}

// ---- Weights ----

// Weights are fixed point with 40 fractional bits, relative to the likeliest
// token: its weight is 2^40. A vocabulary of 2^20 sums to at most 2^60.
inline constexpr int kWeightBits = 40;
inline constexpr uint64_t kOneWeight = uint64_t{1} << kWeightBits;

// exp(x) 2^40 is below 1/2 for x < -41 ln 2 = -28.42: no weight at or below this.
inline constexpr double kLeastExponent = -29;

// exp(x) for x in [-700, 0], without a branch. By n = round(x / ln 2), r = x - n ln 2
// (ln 2 in two parts) and the Taylor polynomial of degree 13 in r by Horner's rule, a
// product and a sum each rounded on its own: within 2 units in the last place.
constexpr double ExpInRange(double x) {
  constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
  // The product of the first part, which has 32 significant bits, with a whole number
  // below 2^11 is exact.
  constexpr double kLn2High = 0x1.62e42feep-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  // Adding and taking away 1.5 * 2^52 rounds to the nearest whole number, which
  // is then also in the low bits of the sum.
  constexpr double kRound = 0x1.8p52;
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
  return std::bit_cast<double>(std::bit_cast<uint64_t>(p) +
                               (std::bit_cast<uint64_t>(shifted) << 52));
}

// exp(x) for x <= 0; 0 below -700.
constexpr double Exp(double x) { return x < -700 ? 0 : ExpInRange(x); }

// Exp(x) 2^40 rounded to the nearest integer, ties to even, for x <= 0, without a
// branch: adding 2^52 leaves the rounded value in the low bits.
constexpr uint64_t Weight(double x) {
  const double in_range = x < kLeastExponent ? kLeastExponent : x;
  return std::bit_cast<uint64_t>(ExpInRange(in_range) * static_cast<double>(kOneWeight) + 0x1p52) -
         std::bit_cast<uint64_t>(0x1p52);
}

// Of a token with `logit` where the largest is `max`.
constexpr uint64_t TokenWeight(float logit, float max, double temperature) {
  return Weight((static_cast<double>(logit) - static_cast<double>(max)) / temperature);
}

constexpr uint64_t MultiplyShift(uint64_t a, uint64_t b, int shift) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{a} * b >> shift);
}

// What the running weight must pass to have reached top_p of `total`.
constexpr uint64_t NucleusTarget(uint64_t total, float top_p) {
  const auto share = static_cast<uint64_t>(static_cast<double>(top_p) * 0x1p32 + 0.5);
  const uint64_t wanted = MultiplyShift(total, share, 32);
  return wanted == 0 ? 0 : wanted - 1;
}

// The least weight that passes min-p: min_p 2^40, rounded up.
constexpr uint64_t LeastWeight(float min_p) {
  const double least = static_cast<double>(min_p) * static_cast<double>(kOneWeight);
  const auto floor = static_cast<uint64_t>(least);
  return static_cast<double>(floor) < least ? floor + 1 : floor;
}

// What the running weight must pass for a draw from `total`.
constexpr uint64_t DrawTarget(uint64_t total, uint64_t random) {
  return MultiplyShift(total, random, 64);
}

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_SAMPLING_MATH_H_
