#include <numeric>
#include <random>
#include <vector>

#include "core/base/error.h"
#include "core/engine/phase_timer.h"
#include "core/engine/rate_window.h"
#include "core/engine/step_cost.h"
#include "core/engine/step_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tokend::engine {
namespace {

using ::testing::ElementsAre;

absl::Duration Ms(double x) { return absl::Milliseconds(x); }

TEST(StepCostTest, LearnsALine) {
  StepCost cost;
  EXPECT_FALSE(cost.has_data());
  EXPECT_EQ(cost.Predict(100), absl::ZeroDuration());
  for (const int rows : {1, 64, 8, 256}) cost.Observe(rows, Ms(10 + 0.5 * rows));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(cost.Predict(80)), 50, 1e-6);
  EXPECT_NEAR(cost.RowsWithin(Ms(50.001), 2048), 80, 0);
  EXPECT_EQ(cost.RowsWithin(Ms(50.001), 16), 16);
  EXPECT_EQ(cost.RowsWithin(Ms(9), 2048), 0);
}

TEST(StepCostTest, OneSizeIsBlamedOnTheRows) {
  StepCost cost;
  for (int i = 0; i < 50; ++i) cost.Observe(2, Ms(20));
  EXPECT_EQ(cost.RowsWithin(Ms(50.001), 2048), 5);
}

TEST(StepCostTest, ForgetsOldSteps) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) cost.Observe(1 + i % 100, Ms(1 + i % 100));
  for (int i = 0; i < 300; ++i) cost.Observe(1 + i % 100, Ms(4 * (1 + i % 100)));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(cost.Predict(50)), 200, 1);
}

TEST(StepCostTest, NeverPredictsNegative) {
  std::mt19937_64 rng(1);
  for (int round = 0; round < 200; ++round) {
    StepCost cost;
    for (int i = 0; i < 20; ++i) {
      cost.Observe(1 + static_cast<int>(rng() % 500), Ms(static_cast<double>(rng() % 100)));
      EXPECT_GE(cost.Predict(1), absl::ZeroDuration());
      EXPECT_GE(cost.Predict(2000), absl::ZeroDuration());
      const int rows = cost.RowsWithin(Ms(50), 2048);
      EXPECT_GE(rows, 0);
      EXPECT_LE(rows, 2048);
      EXPECT_TRUE(rows == 0 || cost.Predict(rows) <= Ms(50.001)) << rows;
    }
  }
}

StepLimits Limits() { return {256, 0, 16, Ms(50), false}; }

// A little less, so that rounding does not matter.
StepCost MillisecondARow() {
  StepCost cost;
  for (const int rows : {1, 10, 100}) cost.Observe(rows, Ms(0.999 * rows));
  return cost;
}

std::vector<int> Plan(absl::Span<const StepDemand> demands, const StepLimits& limits,
                      const StepCost& cost) {
  std::vector<int> rows = {-1};
  PlanStep(demands, limits, cost, &rows);
  return rows;
}

TEST(PlanStepTest, DecodeRowsComeFirstThenPrefillInOrder) {
  const std::vector<StepDemand> demands = {{1000, false}, {1, true}, {0, true}, {9, false}};
  EXPECT_THAT(Plan(demands, Limits(), MillisecondARow()), ElementsAre(49, 1, 0, 0));
  const std::vector<StepDemand> small = {{20, false}, {1, true}, {9, false}, {70, false}};
  EXPECT_THAT(Plan(small, Limits(), MillisecondARow()), ElementsAre(20, 1, 9, 20));
}

TEST(PlanStepTest, APageIsTheLeast) {
  StepLimits limits = Limits();
  limits.target = Ms(2);
  const std::vector<StepDemand> demands = {{1, true}, {1, true}, {1000, false}};
  EXPECT_THAT(Plan(demands, limits, MillisecondARow()), ElementsAre(1, 1, 16));
}

TEST(PlanStepTest, WithoutHurryStepsMayBeLonger) {
  StepLimits limits = Limits();
  limits.max_batch_tokens = 2048;
  const std::vector<StepDemand> demands = {{3000, false}};
  EXPECT_THAT(Plan(demands, limits, MillisecondARow()), ElementsAre(400));
  limits.hurry = true;
  EXPECT_THAT(Plan(demands, limits, MillisecondARow()), ElementsAre(50));
}

TEST(PlanStepTest, TheTokenCountIsTheCeiling) {
  StepCost fast;
  for (const int rows : {1, 10, 100}) fast.Observe(rows, absl::Microseconds(rows));
  const std::vector<StepDemand> demands = {{1, true}, {3000, false}, {1, true}};
  EXPECT_THAT(Plan(demands, Limits(), fast), ElementsAre(1, 254, 1));
  EXPECT_THAT(Plan(demands, Limits(), StepCost()), ElementsAre(1, 128, 1));
}

TEST(PlanStepTest, AChunkSetByHandIsForEachTurn) {
  StepLimits limits = Limits();
  limits.prefill_chunk_tokens = 7;
  const std::vector<StepDemand> demands = {{1000, false}, {1, true}, {3, false}, {1000, false}};
  EXPECT_THAT(Plan(demands, limits, MillisecondARow()), ElementsAre(7, 1, 3, 7));
  limits.max_batch_tokens = 10;
  EXPECT_THAT(Plan(demands, limits, MillisecondARow()), ElementsAre(7, 1, 2, 0));
}

TEST(PlanStepTest, RandomPlansKeepTheirPromises) {
  std::mt19937_64 rng(2);
  for (int round = 0; round < 2000; ++round) {
    std::vector<StepDemand> demands(1 + rng() % 32);
    int decodes = 0;
    int64_t wanted = 0;
    for (StepDemand& demand : demands) {
      demand.decode = rng() % 2 == 0;
      demand.rows =
          demand.decode ? static_cast<int64_t>(rng() % 2) : static_cast<int64_t>(rng() % 600);
      decodes += demand.decode ? static_cast<int>(demand.rows) : 0;
      wanted += demand.decode ? 0 : demand.rows;
    }
    StepLimits limits = Limits();
    limits.max_batch_tokens = 32 + static_cast<int>(rng() % 500);
    limits.prefill_chunk_tokens = rng() % 3 == 0 ? 1 + static_cast<int>(rng() % 100) : 0;
    const auto rows = Plan(demands, limits, MillisecondARow());
    ASSERT_EQ(rows.size(), demands.size());
    int prefill = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_LE(rows[i], demands[i].rows);
      if (demands[i].decode) {
        ASSERT_EQ(rows[i], demands[i].rows);
      } else {
        prefill += rows[i];
      }
    }
    ASSERT_LE(std::accumulate(rows.begin(), rows.end(), 0), limits.max_batch_tokens);
    if (wanted > 0 && decodes < limits.max_batch_tokens) {
      ASSERT_GT(prefill, 0);
    }
  }
}

TEST(PhaseTimerTest, PhasesAddUpToTheTotal) {
  PhaseTimer timer(Ms(100));
  timer.Enter(PhaseTimer::kPrefill, Ms(130));
  EXPECT_EQ(timer.OnToken(Ms(180)), Ms(80));
  timer.Enter(PhaseTimer::kDecode, Ms(180));
  timer.Enter(PhaseTimer::kParked, Ms(200));
  timer.Enter(PhaseTimer::kDecode, Ms(260));
  EXPECT_EQ(timer.OnToken(Ms(270)), Ms(90));
  const Timings timings = timer.Finish(Ms(300));
  EXPECT_EQ(timings.queue, Ms(30));
  EXPECT_EQ(timings.prefill, Ms(50));
  EXPECT_EQ(timings.decode, Ms(60));
  EXPECT_EQ(timings.parked, Ms(60));
  EXPECT_EQ(timings.time_to_first_token, Ms(80));
  EXPECT_EQ(timings.total, Ms(200));
}

TEST(RateWindowTest, CountsTheLastTenSeconds) {
  RateWindow rates;
  EXPECT_EQ(rates.Get(absl::Seconds(100)).decode, 0);
  for (int second = 0; second < 30; ++second) rates.Add(100, 7, absl::Seconds(second));
  EXPECT_NEAR(rates.Get(absl::Seconds(30)).prefill, 100, 1e-9);
  EXPECT_NEAR(rates.Get(absl::Seconds(30)).decode, 7, 1e-9);
  EXPECT_NEAR(rates.Get(absl::Seconds(35)).decode, 3.5, 1e-9);
  EXPECT_EQ(rates.Get(absl::Seconds(60)).decode, 0);
}

}  // namespace
}  // namespace tokend::engine
