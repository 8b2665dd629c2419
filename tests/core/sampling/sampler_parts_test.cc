#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "core/ops/philox.h"
#include "core/ops/sampling_math.h"
#include "core/sampling/candidates.h"
#include "core/sampling/fixed_exp.h"
#include "core/sampling/penalty_state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tokend::sampling {
namespace {

using ops::Exp;
using ops::IdOfOrder;
using ops::kForbiddenKey;
using ops::kLeastExponent;
using ops::kOneWeight;
using ops::OrderKey;
using ops::OrderOf;
using ops::Philox4x32;
using ops::RandomBits;
using ops::Weight;
using ::testing::ElementsAre;

// Known answers that come with the paper's own implementation (Random123).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, 0, 0).word,
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  const uint32_t ones = 0xffffffff;
  EXPECT_THAT(Philox4x32({ones, ones, ones, ones}, ones, ones).word,
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0).word,
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(PhiloxTest, EveryBitOfSeedAndPositionMatters) {
  std::vector<uint64_t> seen = {RandomBits(0, 0)};
  for (int bit = 0; bit < 64; ++bit) seen.push_back(RandomBits(uint64_t{1} << bit, 0));
  for (int bit = 0; bit < 63; ++bit) seen.push_back(RandomBits(0, int64_t{1} << bit));
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

TEST(FixedExpTest, IsWithinTwoUnitsOfTheLibrary) {
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> uniform(-700, 0);
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 == 0 ? uniform(rng) : uniform(rng) / 1000;
    const double want = std::exp(x);
    ASSERT_NEAR(Exp(x), want, 2 * want * std::numeric_limits<double>::epsilon()) << x;
  }
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-1000), 0);
  EXPECT_EQ(Exp(-std::numeric_limits<double>::infinity()), 0);
}

TEST(FixedExpTest, WeightRoundsToFortyBits) {
  EXPECT_EQ(Weight(0), kOneWeight);
  EXPECT_EQ(Weight(-28.0), static_cast<uint64_t>(std::llround(std::exp(-28.0) * 0x1p40)));
  EXPECT_EQ(Weight(-28.41), 1u);
  EXPECT_EQ(Weight(-28.43), 0u);
  EXPECT_EQ(Weight(kLeastExponent), 0u);
  EXPECT_EQ(Weight(-1e300), 0u);
}

TEST(OrderKeyTest, OrdersAsFloatsDo) {
  const std::vector<float> ascending = {-std::numeric_limits<float>::infinity(),
                                        -std::numeric_limits<float>::max(),
                                        -2,
                                        -1,
                                        -std::numeric_limits<float>::denorm_min(),
                                        0,
                                        std::numeric_limits<float>::denorm_min(),
                                        1,
                                        2,
                                        std::numeric_limits<float>::max()};
  for (size_t i = 1; i < ascending.size(); ++i) {
    EXPECT_LT(OrderKey(ascending[i - 1]), OrderKey(ascending[i])) << ascending[i];
  }
  EXPECT_EQ(OrderKey(-0.0f), OrderKey(0.0f));
  EXPECT_EQ(OrderKey(ascending[0]), kForbiddenKey);
}

TEST(CandidateTest, LargerLogitThenLowerIdComesFirst) {
  EXPECT_GT(OrderOf(5, 9), OrderOf(4, 1));
  EXPECT_GT(OrderOf(5, 1), OrderOf(5, 2));
  EXPECT_GT(OrderOf(0, 1), OrderOf(-1, 1));
  EXPECT_EQ(IdOfOrder(OrderOf(-7, 123456)), 123456);
  EXPECT_EQ(IdOfOrder(OrderOf(7, 0)), 0);
}

TEST(LogitScanTest, NoticesWhatIsNotFinite) {
  LogitScan scan;
  for (const size_t size : {1u, 127u, 128u, 129u, 1000u}) {
    std::vector<float> logits(size, 1.0f);
    EXPECT_TRUE(scan.Start(logits));
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      for (size_t at = 0; at < size; ++at) {
        auto broken = logits;
        broken[at] = bad;
        ASSERT_FALSE(scan.Start(broken)) << size << " " << at;
      }
    }
  }
}

TEST(LogitScanTest, FindsTheLargest) {
  std::mt19937_64 rng(3);
  LogitScan scan;
  std::vector<Candidate> got;
  for (int round = 0; round < 500; ++round) {
    std::vector<float> logits(1 + rng() % 1000);
    for (float& logit : logits) logit = static_cast<float>(rng() % 100) - 50;
    for (float& logit : logits) {
      if (rng() % 10 == 0) logit = -std::numeric_limits<float>::infinity();
    }
    std::vector<float> sorted;
    for (const float logit : logits) {
      if (std::isfinite(logit)) sorted.push_back(logit);
    }
    std::sort(sorted.rbegin(), sorted.rend());
    scan.Start(logits);
    ASSERT_EQ(scan.Argmax() < 0, sorted.empty());
    if (sorted.empty()) continue;
    EXPECT_EQ(scan.Argmax(), std::find(logits.begin(), logits.end(), sorted[0]) - logits.begin());
    const size_t count = 1 + rng() % logits.size();
    const float last = sorted[std::min(count, sorted.size()) - 1];
    const auto check = [&](float least) {
      std::vector<int32_t> ids;
      for (const Candidate& candidate : got) ids.push_back(candidate.id());
      std::sort(ids.begin(), ids.end());
      std::vector<int32_t> want;
      for (size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] >= least) want.push_back(static_cast<int32_t>(i));
      }
      ASSERT_EQ(ids, want);
    };
    scan.Largest(count, &got);
    check(last);
    scan.AtLeast(last, &got);
    check(last);
  }
}

TEST(SelectByWeightTest, AgreesWithASortedWalk) {
  std::mt19937_64 rng(2);
  for (int round = 0; round < 300; ++round) {
    const int size = 1 + static_cast<int>(rng() % 500);
    std::vector<Candidate> candidates;
    uint64_t sum = 0;
    for (int i = 0; i < size; ++i) {
      candidates.push_back({OrderOf(static_cast<int32_t>(rng() % 50), i), 0});
      candidates.back().weight = rng() % 4 == 0 ? 0 : rng() % kOneWeight;
      sum += candidates.back().weight;
    }
    if (sum == 0) continue;
    auto sorted = candidates;
    std::sort(sorted.begin(), sorted.end(),
              [](const Candidate& a, const Candidate& b) { return a.order > b.order; });
    const uint64_t target = round % 7 == 0 ? sum - 1 : rng() % sum;
    size_t want = 0;
    for (uint64_t running = sorted[0].weight; running <= target;) running += sorted[++want].weight;
    std::shuffle(candidates.begin(), candidates.end(), rng);
    const size_t got = SelectByWeight(absl::MakeSpan(candidates), target);
    ASSERT_EQ(got, want);
    EXPECT_EQ(candidates[got].order, sorted[want].order);
    std::sort(candidates.begin(), candidates.begin() + got + 1,
              [](const Candidate& a, const Candidate& b) { return a.order > b.order; });
    for (size_t i = 0; i <= got; ++i) ASSERT_EQ(candidates[i].order, sorted[i].order);
  }
}

TEST(PenaltyStateTest, WindowForgetsTheOldestAndOutputDoesNot) {
  ops::SamplingParams params;
  params.repetition_penalty = 1.5f;
  params.presence_penalty = 0.5f;
  PenaltyState state(params);
  EXPECT_TRUE(state.wants_context());
  state.AddContext(std::vector<int32_t>(ops::kPenaltyWindowTokens + 5, 7));
  EXPECT_EQ(state.counts().at(7).window, ops::kPenaltyWindowTokens);
  state.AddOutput(8);
  EXPECT_EQ(state.counts().at(7).window, ops::kPenaltyWindowTokens - 1);
  for (int i = 0; i < ops::kPenaltyWindowTokens - 1; ++i) state.AddOutput(9);
  EXPECT_FALSE(state.counts().contains(7));
  state.AddOutput(9);
  EXPECT_EQ(state.counts().at(8).window, 0);
  EXPECT_EQ(state.counts().at(8).output, 1);
  EXPECT_EQ(state.counts().at(9).window, ops::kPenaltyWindowTokens);
}

TEST(PenaltyStateTest, KeepsNothingWithoutPenalties) {
  PenaltyState state{ops::SamplingParams{}};
  state.AddContext({1, 2, 3});
  state.AddOutput(4);
  EXPECT_FALSE(state.wants_context());
  EXPECT_TRUE(state.counts().empty());
}

TEST(PenaltyStateTest, PresenceAndFrequencyIgnoreTheContext) {
  ops::SamplingParams params;
  params.frequency_penalty = 0.5f;
  PenaltyState state(params);
  state.AddContext({1, 2, 3});
  EXPECT_TRUE(state.counts().empty());
  state.AddOutput(4);
  EXPECT_EQ(state.counts().at(4).output, 1);
  EXPECT_EQ(state.counts().at(4).window, 0);
}

}  // namespace
}  // namespace tokend::sampling
