#ifndef TOKEND_CORE_OPS_SAMPLING_PARAMS_H_
#define TOKEND_CORE_OPS_SAMPLING_PARAMS_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace tokend::ops {

// How a token is drawn, every default resolved and every value checked. Steps
// in this order: bias, penalties, temperature, top-k, top-p, min-p, draw.
// Ranges as in tokend.v1.Sampling.
struct SamplingParams {
  float temperature = 0.8f;  // 0: the likeliest, ties by lowest id
  int32_t top_k = 40;        // 0: off
  float top_p = 0.95f;       // 1: off
  float min_p = 0.05f;       // 0: off
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // by ascending id; -100 forbids
  uint64_t seed = 0;
};

// Whether a draw depends on the logits alone, not on tokens before it.
inline bool DrawsAlone(const SamplingParams& params) {
  return params.logit_bias.empty() && params.repetition_penalty == 1 &&
         params.presence_penalty == 0 && params.frequency_penalty == 0;
}

// The repetition penalty looks at so many newest tokens of base, input and output.
inline constexpr int kPenaltyWindowTokens = 1024;

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_SAMPLING_PARAMS_H_
