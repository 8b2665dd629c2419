// The exponential that turns logits into weights, defined to the bit so that
// every device draws the same token.
#ifndef TOKEND_CORE_SAMPLING_FIXED_EXP_H_
#define TOKEND_CORE_SAMPLING_FIXED_EXP_H_

#include <cstdint>

#include "absl/types/span.h"

namespace tokend::sampling {

// Weights are fixed point with 40 fractional bits, relative to the likeliest
// token: its weight is 2^40. A vocabulary of 2^20 sums to at most 2^60.
inline constexpr int kWeightBits = 40;
inline constexpr uint64_t kOne = uint64_t{1} << kWeightBits;

// exp(x) 2^40 is below 1/2 for x < -41 ln 2 = -28.42: no weight at or below this.
inline constexpr double kLeastExponent = -29;

// exp(x) for x <= 0; 0 below -700. By n = round(x / ln 2), r = x - n ln 2 (ln 2
// in two parts) and the Taylor polynomial of degree 13 in r by Horner's rule, a
// product and a sum each rounded on its own: within 2 units in the last place.
double Exp(double x);

// Exp(x) 2^40 rounded to the nearest integer, ties to even, for x <= 0.
uint64_t Weight(double x);

// Sum of Weight((logits[i] - max) / temperature), in double. `max` is the largest.
uint64_t SumWeights(absl::Span<const float> logits, float max, double temperature);

// Sum of Exp(logits[i] - max) over i ascending, in double. `max` is the largest.
double SumExp(absl::Span<const float> logits, float max);

}  // namespace tokend::sampling

#endif  // TOKEND_CORE_SAMPLING_FIXED_EXP_H_
