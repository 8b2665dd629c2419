#ifndef TOKEND_CORE_SAMPLING_SAMPLER_H_
#define TOKEND_CORE_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/ops/sampling_params.h"
#include "core/sampling/candidates.h"
#include "core/sampling/penalty_state.h"

namespace tokend::sampling {

struct TokenProbability {
  int32_t token = 0;
  float log_probability = 0;
};

// Draws tokens. In this order, l the logits of a row [vocabulary_size] f32, each
// line rounded to f32 once an operation, results kept finite:
//   bias         l += bias; -100 forbids the token
//   repetition   l = l > 0 ? l / r : l * r   for a token in the window
//                (Keskar et al. 2019, "CTRL")
//   frequency    l -= f * count,  then  l -= p  for a token in the output
//   temperature  x = (l - max l) / temperature in double, w = Weight(x) (u64, see
//   ops/sampling_math.h) top-k        the k largest l, and all that tie with the last top-p in the
//   order (l descending, id ascending) the shortest start
//                whose weight reaches top_p (rounded to 2^-32) of the sum
//                (Holtzman et al. 2020, "The curious case of neural text degeneration")
//   min-p        those with w >= min_p * 2^40 (Nguyen et al. 2024, "Min-p sampling")
//   draw         r = floor(RandomBits(seed, position) * sum / 2^64); in the same
//                order the first whose running weight passes r
// With temperature 0: the largest l after the penalties, ties by lowest id.
//
// The token depends on the arguments alone. Holds scratch memory between calls;
// one thread.
class Sampler {
 public:
  // `position`: of the token that is drawn. INTERNAL with kRequestFailed: a logit
  // is not finite. INVALID_ARGUMENT: logit_bias forbids every token. Ids in logit_bias and
  // `penalties` are below logits.size().
  absl::StatusOr<int32_t> Sample(absl::Span<const float> logits, const ops::SamplingParams& params,
                                 const PenaltyState& penalties, int64_t position);

  // Natural logarithms of softmax(logits), finite logits: of `token`, and in
  // `top` (cleared) of the `top_count` largest, largest first, ties by lowest id.
  float LogProbabilities(absl::Span<const float> logits, int32_t token, int top_count,
                         std::vector<TokenProbability>* top);

 private:
  // The logits after bias and penalties: `logits` itself where there are none.
  absl::Span<const float> Adjust(absl::Span<const float> logits, const ops::SamplingParams& params,
                                 const PenaltyState& penalties);
  int32_t Draw(absl::Span<const float> logits, float max, const ops::SamplingParams& params,
               uint64_t random);
  // Fills candidates_ with a start of the order, whole ties, whose weight passes
  // `target`.
  void LoadStart(absl::Span<const float> logits, float max, double temperature, uint64_t target);
  // Sets the weights of candidates_ and returns their sum.
  uint64_t Weigh(absl::Span<const float> logits, float max, double temperature);

  LogitScan scan_;
  std::vector<float> adjusted_;
  std::vector<Candidate> candidates_;
};

// l after one token's penalties, as above; ops::kForbiddenLogit stays.
float ApplyPenalties(float logit, const ops::SamplingParams& params,
                     const PenaltyState::Counts& counts);

}  // namespace tokend::sampling

#endif  // TOKEND_CORE_SAMPLING_SAMPLER_H_
