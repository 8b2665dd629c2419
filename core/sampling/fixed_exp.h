// Sums of ops/sampling_math.h's exponential over a vocabulary.
#ifndef TOKEND_CORE_SAMPLING_FIXED_EXP_H_
#define TOKEND_CORE_SAMPLING_FIXED_EXP_H_

#include <cstdint>

#include "absl/types/span.h"

namespace tokend::sampling {

// Sum of ops::TokenWeight(logits[i], max, temperature). `max` is the largest.
uint64_t SumWeights(absl::Span<const float> logits, float max, double temperature);

// Sum of exp(logits[i] - max) over i ascending, in double. `max` is the largest.
double SumExp(absl::Span<const float> logits, float max);

}  // namespace tokend::sampling

#endif  // TOKEND_CORE_SAMPLING_FIXED_EXP_H_
