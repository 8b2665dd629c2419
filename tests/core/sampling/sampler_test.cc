#include "core/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/base/error.h"
#include "core/sampling/sampler_ref.h"
#include "gtest/gtest.h"

namespace tokend::sampling {
namespace {

using base::ErrorReason;

ops::SamplingParams Plain(float temperature = 1) {
  ops::SamplingParams params;
  params.temperature = temperature;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  return params;
}

PenaltyState MakePenalties(const ops::SamplingParams& params, const std::vector<int32_t>& context,
                           const std::vector<int32_t>& output) {
  PenaltyState state(params);
  state.AddContext(context);
  for (const int32_t token : output) state.AddOutput(token);
  return state;
}

int32_t Draw(Sampler& sampler, const std::vector<float>& logits, const ops::SamplingParams& params,
             int64_t position = 0) {
  const auto token = sampler.Sample(logits, params, PenaltyState(params), position);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.value_or(-1);
}

class RandomCase {
 public:
  explicit RandomCase(uint64_t seed) : rng_(seed) {
    const int sizes[] = {1, 2, 63, 64, 65, 257, 1000, 5000};
    const int vocabulary = sizes[Below(8)];
    logits.resize(vocabulary);
    const float spread = std::pow(10.0f, Uniform(-2, 1.3f));
    std::normal_distribution<float> normal(0, spread);
    // Whole numbers make many ties.
    const bool ties = Below(3) == 0;
    for (float& logit : logits) logit = ties ? std::round(normal(rng_)) : normal(rng_);
    MakeParams(vocabulary);
    context.resize(Below(2) == 0 ? Below(20) : Below(1500));
    output.resize(Below(2) == 0 ? Below(20) : Below(200));
    for (int32_t& token : context) token = Below(std::min(vocabulary, 300));
    for (int32_t& token : output) token = Below(std::min(vocabulary, 40));
    position = static_cast<int64_t>(rng_() >> 8);
  }

  std::vector<float> logits;
  ops::SamplingParams params;
  std::vector<int32_t> context;
  std::vector<int32_t> output;
  int64_t position = 0;

 private:
  int Below(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }
  float Uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(rng_);
  }
  void MakeParams(int vocabulary) {
    params.temperature = Below(6) == 0 ? 0 : Uniform(0.01f, 3);
    params.top_k = Below(3) == 0 ? 0 : Below(vocabulary + 1);
    params.top_p = Below(3) == 0 ? 1 : Uniform(1e-4f, 1);
    params.min_p = Below(3) == 0 ? 0 : Uniform(0, Below(2) == 0 ? 1 : 0.05f);
    params.seed = rng_();
    if (Below(2) == 0) params.repetition_penalty = Uniform(0.5f, 2);
    if (Below(2) == 0) params.presence_penalty = Uniform(-2, 2);
    if (Below(2) == 0) params.frequency_penalty = Uniform(-2, 2);
    for (int id = 0; id + 1 < vocabulary && Below(3) != 0; id += 1 + Below(5)) {
      params.logit_bias.emplace_back(id, Below(3) == 0 ? -100 : Uniform(-100, 100));
    }
  }

  std::mt19937_64 rng_;
};

TEST(SamplerTest, AgreesWithTheReference) {
  Sampler sampler;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const RandomCase c(seed);
    const auto got = sampler.Sample(c.logits, c.params,
                                    MakePenalties(c.params, c.context, c.output), c.position);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(*got, SampleRef(c.logits, c.params, c.context, c.output, c.position))
        << "seed " << seed << ", vocabulary " << c.logits.size();
  }
}

TEST(SamplerTest, LargeVocabularyAgreesWithTheReference) {
  Sampler sampler;
  std::mt19937_64 rng(5);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(49152);
  for (int round = 0; round < 12; ++round) {
    for (float& logit : logits) logit = normal(rng);
    for (const int top_k : {0, 1, 40, 700, 5000}) {
      for (const float top_p : {1.0f, 0.95f}) {
        ops::SamplingParams params = Plain(0.8f);
        params.top_k = top_k;
        params.top_p = top_p;
        params.min_p = round % 2 == 0 ? 0.05f : 0;
        params.seed = rng();
        ASSERT_EQ(Draw(sampler, logits, params, round), SampleRef(logits, params, {}, {}, round))
            << top_k << " " << top_p;
      }
    }
  }
}

// Scratch left by other requests must not show.
TEST(SamplerTest, DoesNotDependOnWhatWasDrawnBefore) {
  Sampler shared;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const RandomCase c(seed);
    const auto penalties = MakePenalties(c.params, c.context, c.output);
    const RandomCase other(seed + 1000);
    (void)shared.Sample(other.logits, other.params,
                        MakePenalties(other.params, other.context, other.output), 3);
    Sampler fresh;
    EXPECT_EQ(*shared.Sample(c.logits, c.params, penalties, c.position),
              *fresh.Sample(c.logits, c.params, penalties, c.position));
  }
}

TEST(SamplerTest, GreedyTakesTheLowestIdOfTies) {
  Sampler sampler;
  std::vector<float> logits(300, -1.0f);
  logits[290] = logits[70] = logits[71] = 2;
  EXPECT_EQ(Draw(sampler, logits, Plain(0)), 70);
  logits.assign(300, -0.0f);
  logits[5] = 0.0f;
  EXPECT_EQ(Draw(sampler, logits, Plain(0)), 0);
}

TEST(SamplerTest, TopKKeepsAllThatTieWithTheLast) {
  Sampler sampler;
  const std::vector<float> logits = {3, 1, 2, 2, 2, 1};
  ops::SamplingParams params = Plain();
  params.top_k = 2;
  std::vector<int> seen(logits.size());
  for (int i = 0; i < 2000; ++i) ++seen[Draw(sampler, logits, params, i)];
  EXPECT_GT(seen[2], 0);
  EXPECT_GT(seen[3], 0);
  EXPECT_GT(seen[4], 0);
  EXPECT_EQ(seen[1] + seen[5], 0);
}

TEST(SamplerTest, TopPKeepsTheShortestStartThatReachesIt) {
  Sampler sampler;
  // Probabilities 1/2, 1/4, 1/8, 1/8: exact in fixed point but for rounding.
  const float ln2 = static_cast<float>(std::log(2.0));
  const std::vector<float> logits = {0, ln2, 2 * ln2, 0};
  const auto seen = [&](float top_p) {
    ops::SamplingParams params = Plain();
    params.top_p = top_p;
    std::vector<bool> drawn(4);
    for (int i = 0; i < 500; ++i) drawn[Draw(sampler, logits, params, i)] = true;
    return drawn;
  };
  EXPECT_EQ(seen(0.49f), (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(seen(0.51f), (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(seen(0.74f), (std::vector<bool>{false, true, true, false}));
  // Of a tie at the edge the lower id comes first.
  EXPECT_EQ(seen(0.80f), (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(seen(0.99f), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(seen(1e-6f), (std::vector<bool>{false, false, true, false}));
}

TEST(SamplerTest, MinPIsRelativeToTheLikeliest) {
  Sampler sampler;
  const std::vector<float> logits = {std::log(0.09f), std::log(0.2f), 0, std::log(0.11f)};
  ops::SamplingParams params = Plain();
  params.min_p = 0.1f;
  std::vector<int> seen(4);
  for (int i = 0; i < 2000; ++i) ++seen[Draw(sampler, logits, params, i)];
  EXPECT_EQ(seen[0], 0);
  EXPECT_GT(seen[3], 0);
  params.min_p = 1;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Draw(sampler, logits, params, i), 2);
}

TEST(SamplerTest, BiasForbidsAndPrefers) {
  Sampler sampler;
  const std::vector<float> logits = {1000, 0, 0, 0};
  ops::SamplingParams params = Plain();
  params.logit_bias = {{0, -100}, {2, 50}};
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Draw(sampler, logits, params, i), 2);
  params.logit_bias = {{0, -100}, {1, -100}, {2, -100}, {3, -100}};
  const auto none = sampler.Sample(logits, params, PenaltyState(params), 0);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::GetErrorReason(none.status()), ErrorReason::kInvalidField);
}

TEST(SamplerTest, PenaltiesChangeTheLogitsAsDocumented) {
  ops::SamplingParams params = Plain();
  params.repetition_penalty = 2;
  params.frequency_penalty = 0.25f;
  params.presence_penalty = 1;
  EXPECT_EQ(ApplyPenalties(6, params, {1, 0}), 3);
  EXPECT_EQ(ApplyPenalties(-6, params, {5, 0}), -12);
  EXPECT_EQ(ApplyPenalties(6, params, {3, 2}), 1.5f);
  EXPECT_EQ(ApplyPenalties(6, params, {0, 2}), 4.5f);
  constexpr float kMax = std::numeric_limits<float>::max();
  params.repetition_penalty = 1e-30f;
  EXPECT_EQ(ApplyPenalties(1e20f, params, {1, 0}), kMax);
  EXPECT_EQ(ops::ApplyBias(1, -100), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(ops::ApplyBias(1, -99), -98);
}

TEST(SamplerTest, NonFiniteLogitsFailTheRequest) {
  Sampler sampler;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const float temperature : {0.0f, 1.0f}) {
      std::vector<float> logits(100, 0.0f);
      logits[42] = bad;
      const auto params = Plain(temperature);
      const auto token = sampler.Sample(logits, params, PenaltyState(params), 0);
      EXPECT_EQ(token.status().code(), absl::StatusCode::kInternal);
      EXPECT_EQ(base::GetErrorReason(token.status()), ErrorReason::kRequestFailed);
      EXPECT_NE(token.status().message().find("42"), absl::string_view::npos);
    }
  }
}

TEST(SamplerTest, ExtremeTemperaturesStayInOrder) {
  Sampler sampler;
  std::vector<float> logits = {0, 3, 2.999f, std::numeric_limits<float>::max()};
  const float denormal = std::numeric_limits<float>::denorm_min();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Draw(sampler, logits, Plain(denormal), i), 3);
  logits[3] = -std::numeric_limits<float>::max();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Draw(sampler, logits, Plain(1e-6f), i), 1);
  for (int i = 0; i < 50; ++i) EXPECT_NE(Draw(sampler, logits, Plain(10), i), 3);
}

// Pearson's chi-squared test of 100,000 draws against the reference distribution.
TEST(SamplerTest, DrawsFollowTheDistribution) {
  std::mt19937_64 rng(6);
  std::normal_distribution<float> normal(0, 1.5f);
  for (int round = 0; round < 4; ++round) {
    std::vector<float> logits(50);
    for (float& logit : logits) logit = normal(rng);
    ops::SamplingParams params = Plain(0.9f);
    params.seed = rng();
    if (round == 1) params.top_k = 12;
    if (round == 2) params.top_p = 0.8f;
    if (round == 3) params.min_p = 0.1f;
    const auto want = DistributionRef(logits, params, {}, {});
    Sampler sampler;
    constexpr int kDraws = 100000;
    std::vector<int> seen(logits.size());
    for (int i = 0; i < kDraws; ++i) ++seen[Draw(sampler, logits, params, i)];
    double chi2 = 0;
    int cells = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (want[i] == 0) {
        EXPECT_EQ(seen[i], 0);
        continue;
      }
      const double expected = want[i] * kDraws;
      chi2 += (seen[i] - expected) * (seen[i] - expected) / expected;
      ++cells;
    }
    // Mean cells - 1, variance twice that: 5 standard deviations.
    EXPECT_LT(chi2, cells - 1 + 5 * std::sqrt(2.0 * cells)) << "round " << round;
  }
}

TEST(SamplerTest, LogProbabilitiesAgreeWithTheReference) {
  Sampler sampler;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const RandomCase c(seed);
    const auto want = LogProbabilitiesRef(c.logits);
    std::vector<int32_t> order(c.logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return c.logits[a] > c.logits[b]; });
    const int32_t token = static_cast<int32_t>(seed % c.logits.size());
    std::vector<TokenProbability> top = {{1, 1}};
    const int count = static_cast<int>(seed % 21);
    const float got = sampler.LogProbabilities(c.logits, token, count, &top);
    EXPECT_NEAR(got, want[token], 1e-6 * (1 + std::abs(want[token])));
    ASSERT_EQ(top.size(), std::min<size_t>(count, c.logits.size()));
    for (size_t i = 0; i < top.size(); ++i) {
      EXPECT_EQ(top[i].token, order[i]);
      EXPECT_NEAR(top[i].log_probability, want[order[i]], 1e-6 * (1 + std::abs(want[order[i]])));
    }
  }
}

}  // namespace
}  // namespace tokend::sampling
