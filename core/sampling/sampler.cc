#include "core/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "core/ops/philox.h"
#include "core/ops/sampling_math.h"
#include "core/sampling/errors.h"
#include "core/sampling/fixed_exp.h"

namespace tokend::sampling {
namespace {

uint64_t TotalWeight(absl::Span<const Candidate> candidates) {
  uint64_t sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

// min-p without top-p: no weight lies that far below the largest. Rounding can
// have added 1/2 to what was as little as 1/2, a factor of exp(0.7).
double LeastExponentForMinP(float min_p) {
  return std::max(ops::kLeastExponent, std::log(static_cast<double>(min_p)) - 0.7);
}

// Those with a weight that passes min-p, moved to the front.
absl::Span<Candidate> KeepMinP(absl::Span<Candidate> candidates, float min_p) {
  const uint64_t least = ops::LeastWeight(min_p);
  const auto end = std::partition(candidates.begin(), candidates.end(),
                                  [least](const Candidate& c) { return c.weight >= least; });
  return candidates.first(static_cast<size_t>(end - candidates.begin()));
}

float RoundDown(double x) {
  return std::nextafter(static_cast<float>(x), -std::numeric_limits<float>::infinity());
}

}  // namespace

float ApplyPenalties(float logit, const ops::SamplingParams& params,
                     const PenaltyState::Counts& counts) {
  if (logit == ops::kForbiddenLogit) return logit;
  if (counts.window > 0) logit = ops::ApplyRepetition(logit, params.repetition_penalty);
  if (counts.output > 0) {
    logit = ops::ApplyOutputPenalties(logit, params.frequency_penalty, params.presence_penalty,
                                      counts.output);
  }
  return logit;
}

absl::StatusOr<int32_t> Sampler::Sample(absl::Span<const float> logits,
                                        const ops::SamplingParams& params,
                                        const PenaltyState& penalties, int64_t position) {
  if (!scan_.Start(logits)) {
    const auto bad = std::find_if_not(logits.begin(), logits.end(),
                                      [](float logit) { return std::isfinite(logit); });
    return NonFiniteLogit(static_cast<int32_t>(bad - logits.begin()));
  }
  const absl::Span<const float> adjusted = Adjust(logits, params, penalties);
  if (adjusted.data() != logits.data()) scan_.Start(adjusted);
  const int32_t best = scan_.Argmax();
  if (best < 0) return EveryTokenForbidden();
  if (params.temperature == 0) return best;
  return Draw(adjusted, adjusted[best], params, ops::RandomBits(params.seed, position));
}

absl::Span<const float> Sampler::Adjust(absl::Span<const float> logits,
                                        const ops::SamplingParams& params,
                                        const PenaltyState& penalties) {
  if (params.logit_bias.empty() && penalties.counts().empty()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : params.logit_bias) {
    adjusted_[token] = ops::ApplyBias(adjusted_[token], bias);
  }
  for (const auto& [token, counts] : penalties.counts()) {
    adjusted_[token] = ApplyPenalties(adjusted_[token], params, counts);
  }
  return adjusted_;
}

int32_t Sampler::Draw(absl::Span<const float> logits, float max, const ops::SamplingParams& params,
                      uint64_t random) {
  const double temperature = params.temperature;
  // What is still to be told of the whole order: the nucleus, or the draw itself.
  const bool nucleus = params.top_p < 1;
  if (params.top_k > 0) {
    scan_.Largest(params.top_k, &candidates_);
    Weigh(logits, max, temperature);
  } else if (!nucleus && params.min_p > 0) {
    const double least = LeastExponentForMinP(params.min_p);
    scan_.AtLeast(RoundDown(static_cast<double>(max) + least * temperature), &candidates_);
    Weigh(logits, max, temperature);
  } else {
    const uint64_t total = SumWeights(logits, max, temperature);
    const uint64_t target =
        nucleus ? ops::NucleusTarget(total, params.top_p) : ops::DrawTarget(total, random);
    LoadStart(logits, max, temperature, target);
    const size_t last = SelectByWeight(absl::MakeSpan(candidates_), target);
    if (!nucleus) return candidates_[last].id();
    candidates_.resize(last + 1);
  }
  absl::Span<Candidate> kept = absl::MakeSpan(candidates_);
  if (nucleus && params.top_k > 0) {
    kept =
        kept.first(SelectByWeight(kept, ops::NucleusTarget(TotalWeight(kept), params.top_p)) + 1);
  }
  if (params.min_p > 0) kept = KeepMinP(kept, params.min_p);
  return kept[SelectByWeight(kept, ops::DrawTarget(TotalWeight(kept), random))].id();
}

void Sampler::LoadStart(absl::Span<const float> logits, float max, double temperature,
                        uint64_t target) {
  constexpr size_t kFirstTry = 256;
  for (size_t count = kFirstTry;; count *= 8) {
    scan_.Largest(count, &candidates_);
    if (Weigh(logits, max, temperature) > target) return;
    TOKEND_CHECK(count < logits.size());
  }
}

uint64_t Sampler::Weigh(absl::Span<const float> logits, float max, double temperature) {
  uint64_t sum = 0;
  for (Candidate& candidate : candidates_) {
    candidate.weight = ops::TokenWeight(logits[candidate.id()], max, temperature);
    sum += candidate.weight;
  }
  return sum;
}

float Sampler::LogProbabilities(absl::Span<const float> logits, int32_t token, int top_count,
                                std::vector<TokenProbability>* top) {
  scan_.Start(logits);
  const float max = logits[scan_.Argmax()];
  const double log_sum = static_cast<double>(max) + std::log(SumExp(logits, max));
  const auto log_probability = [&](int32_t id) {
    return static_cast<float>(static_cast<double>(logits[id]) - log_sum);
  };
  top->clear();
  if (top_count > 0) {
    scan_.Largest(top_count, &candidates_);
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.order > b.order; });
    candidates_.resize(std::min<size_t>(candidates_.size(), top_count));
    for (const Candidate& candidate : candidates_) {
      top->push_back({candidate.id(), log_probability(candidate.id())});
    }
  }
  return log_probability(token);
}

}  // namespace tokend::sampling
