// What Sampler is held against: the same rules, by a full sort and library
// functions in double.
#ifndef TOKEND_CORE_SAMPLING_SAMPLER_REF_H_
#define TOKEND_CORE_SAMPLING_SAMPLER_REF_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/ops/sampling_params.h"

namespace tokend::sampling {

// Tokens as they stand: `context` is base and input, `output` this turn's.
// Logits are finite and at least one token is allowed.
int32_t SampleRef(absl::Span<const float> logits, const ops::SamplingParams& params,
                  absl::Span<const int32_t> context, absl::Span<const int32_t> output,
                  int64_t position);

// The distribution that SampleRef draws from: [vocabulary_size], sum 1.
std::vector<double> DistributionRef(absl::Span<const float> logits,
                                    const ops::SamplingParams& params,
                                    absl::Span<const int32_t> context,
                                    absl::Span<const int32_t> output);

// log(softmax(logits)): [vocabulary_size].
std::vector<double> LogProbabilitiesRef(absl::Span<const float> logits);

}  // namespace tokend::sampling

#endif  // TOKEND_CORE_SAMPLING_SAMPLER_REF_H_
