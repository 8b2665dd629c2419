// HEAVY_HITTERS: pages stay by their weight, and nothing else decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/kv/heavy_hitters.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

constexpr int kPageTokens = 4;

RetentionPolicy Heavy(int64_t sinks, int64_t window, int32_t kept, int64_t epoch) {
  return {RetentionPolicy::Kind::kHeavyHitters, sinks, window, 0, kept, epoch};
}

// By the rule's words, with plain loops.
TEST(HeavyHittersTest, TheBestOfTheOldPagesStay) {
  const auto seed = static_cast<unsigned>(std::random_device()());
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 5000; ++round) {
    const HeavyHitters rule = {below(9), 1 + below(20), static_cast<int32_t>(below(5)),
                               kPageTokens * (1 + below(4))};
    const int64_t epoch = rule.epoch_tokens * (1 + below(6));
    std::vector<ScoredPage> pages;
    for (int64_t index = 0; index < epoch / kPageTokens; ++index) {
      if (below(4) > 0) pages.push_back({index, below(3)});  // ties
    }
    std::vector<ScoredPage> after = pages;
    HeavyScratch scratch;
    KeepBest(rule, epoch, kPageTokens, absl::MakeSpan(after), &scratch);
    for (size_t i = 0; i < pages.size(); ++i) {
      EXPECT_EQ(after[i].score, pages[i].score / 2);
      const auto is_old = [&](const ScoredPage& page) {
        return page.index * kPageTokens >= rule.sink_tokens &&
               (page.index + 1) * kPageTokens <= epoch - rule.window_tokens;
      };
      int better = 0;
      for (const ScoredPage& other : pages) {
        const bool ahead = other.score > pages[i].score ||
                           (other.score == pages[i].score && other.index < pages[i].index);
        better += is_old(other) && ahead ? 1 : 0;
      }
      EXPECT_EQ(scratch.stays[i], !is_old(pages[i]) || better < rule.kept_pages);
    }
  }
}

TEST(HeavyTest, AnySizeOfStepEqualsTheReference) {
  for (const RetentionPolicy& policy :
       {Heavy(2, 9, 3, 8), Heavy(0, 1, 0, 4), Heavy(5, 16, 1, 16), Heavy(4, 30, 2, 12)}) {
    for (const int chunk : {1, 3, 7, 64}) {
      KvHarness harness;
      ASSERT_TRUE(harness.Create("a", policy).ok());
      for (int turn = 0; turn < 7; ++turn) {
        ASSERT_TRUE(harness.Turn("a", SomeTokens(17 + turn, turn), chunk).ok());
        EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
        harness.Audit();
      }
    }
  }
}

// Positions before computed() that the next query sees in some layer, as the views
// of a prepared step say.
int64_t Visible(const Branch& branch) {
  int64_t visible = 0;
  for (int64_t position = 0; position < branch.computed(); ++position) {
    visible +=
        std::any_of(branch.layers().begin(), branch.layers().end(), [&](const ops::LayerKv& layer) {
          const absl::Span<const int32_t> kept(layer.kept, layer.kept_pages);
          return position < layer.hidden_begin || position >= layer.hidden_end ||
                 std::count(kept.begin(), kept.end(), position / kPageTokens) > 0;
        });
  }
  return visible;
}

TEST(HeavyTest, CountsWhatIsOutOfSight) {
  for (int length = 1; length < 80; length += 3) {
    KvHarness harness;
    ASSERT_TRUE(harness.Create("a", Heavy(2, 9, 2, 8)).ok());
    ASSERT_TRUE(harness.Turn("a", SomeTokens(length), 7).ok());
    const int64_t evicted = harness.last_stats().evicted_tokens;
    auto writer = harness.Admit("a");
    auto branch = *harness.store().Checkout(writer.get(), {});
    branch->Append(SomeTokens(30, 9));
    branch->MatchPrefix();
    ASSERT_TRUE(branch->Prepare(1).ok());
    EXPECT_EQ(branch->stats().cached_tokens, Visible(*branch));
    EXPECT_EQ(branch->stats().cached_tokens, length - evicted);
    ASSERT_TRUE(harness.Compute(branch.get(), 5, length + 20).ok());
    branch->Park();
    branch->MatchPrefix();
    ASSERT_TRUE(harness.Compute(branch.get(), 7, length + 29).ok());
    ASSERT_TRUE(branch->Prepare(1).ok());
    EXPECT_EQ(evicted + branch->stats().evicted_tokens, branch->computed() - Visible(*branch));
  }
}

TEST(HeavyTest, PagesStayWithinTheirBound) {
  KvHarness harness;
  const RetentionPolicy policy = Heavy(2, 9, 3, 8);
  ASSERT_TRUE(harness.Create("a", policy).ok());
  const int64_t most = policy.heavy_hitters().MostPages(kPageTokens);
  EXPECT_EQ(most, 1 + 3 + 3 + 2);
  for (int turn = 0; turn < 30; ++turn) {
    auto writer = harness.Admit("a");
    auto branch = *harness.store().Checkout(writer.get(), {});
    branch->Append(SomeTokens(13, turn));
    branch->MatchPrefix();
    while (branch->computed() < branch->tokens()) {
      const int64_t rows = std::min<int64_t>(5, branch->step_rows());
      ASSERT_TRUE(branch->Prepare(rows).ok());
      for (const ops::LayerKv& layer : branch->layers()) EXPECT_LE(layer.page_count, most);
      ASSERT_TRUE(harness.Compute(branch.get(), 5, branch->computed() + rows).ok());
    }
    const int64_t tokens = branch->tokens();
    ASSERT_TRUE(harness.store().Commit(writer.get(), std::move(branch), {.tokens = tokens}).ok());
    writer.reset();
    harness.store().Maintain();
    const PageCounts pages = harness.store().Snapshot().pages;
    EXPECT_LE(pages.total - pages.free, 3 * most);
    EXPECT_EQ(pages.private_pages, pages.total - pages.free);
  }
  harness.Audit();
}

// Forks and dropped turns in the middle of an epoch go on alike; each turn's logits
// are held against the reference.
TEST(HeavyTest, ForksAndDropsInTheMiddleOfAnEpoch) {
  for (int length = 1; length < 60; ++length) {
    KvHarness harness;
    ASSERT_TRUE(harness.Create("a", Heavy(2, 9, 2, 8)).ok());
    ASSERT_TRUE(harness.Turn("a", SomeTokens(length), 7).ok());
    {
      auto writer = harness.Admit("a");
      auto branch = *harness.store().Checkout(writer.get(), {});
      branch->Append(SomeTokens(21, 9));
      branch->MatchPrefix();
      ASSERT_TRUE(harness.Compute(branch.get(), 3).ok());
      harness.Audit();
    }
    ASSERT_TRUE(harness.store().Fork("p", "a", {}, "b", {}).ok());
    harness.Audit();
    ASSERT_TRUE(harness.Turn("b", SomeTokens(20, 3), 5).ok());
    EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
    ASSERT_TRUE(harness.Turn("a", SomeTokens(20, 4), 5).ok());
    EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
    harness.Audit();
  }
}

TEST(HeavyTest, ACutGoesOnFromTheEpochOrFromTheStart) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a", Heavy(2, 9, 2, 8)).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(53), 7, 51).ok());
  harness.store().Maintain();
  // Of the last epoch's start: sinks, kept pages, window.
  EXPECT_EQ(harness.store().Snapshot().pages.private_pages, 3 * (1 + 2 + 3));
  ASSERT_TRUE(harness.Turn("a", SomeTokens(4, 2)).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 3);  // from the last epoch's start on
  ASSERT_TRUE(harness.Turn("a", SomeTokens(5, 6), 64, {}, 54).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 6);
  // An edit further back finds no scores.
  ASSERT_TRUE(harness.Turn("a", SomeTokens(5, 3), 64, {}, 30).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 30);
  harness.Audit();
  // Neither does an older version.
  ASSERT_TRUE(harness.store().Rollback("p", "a", 1, {}).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(5, 4)).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 51);
  harness.Audit();
}

TEST(HeavyTest, UnderPressureItsPagesGoAndAreComputedAgain) {
  StoreOptions options = SmallOptions();
  options.pages = 3 * 20;
  KvHarness harness(options);
  ASSERT_TRUE(harness.Create("a", Heavy(2, 9, 2, 8)).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(50), 7).ok());
  {
    auto branch = harness.store().CheckoutEphemeral("q");
    branch->Append(SomeTokens(20 * kPageTokens, 5));
    branch->MatchPrefix();
    ASSERT_TRUE(harness.Compute(branch.get(), 16).ok());
    harness.Audit();
  }
  EXPECT_EQ(harness.store().GetSession("p", "a")->resident_tokens, 0);
  ASSERT_TRUE(harness.Turn("a", SomeTokens(9, 2), 5).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 50);
  harness.Audit();
}

TEST(HeavyTest, AParkedBranchStartsAgain) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a", Heavy(2, 9, 2, 8)).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(30), 7).ok());
  auto writer = harness.Admit("a");
  auto branch = *harness.store().Checkout(writer.get(), {});
  branch->Append(SomeTokens(21, 9));
  branch->MatchPrefix();
  ASSERT_TRUE(harness.Compute(branch.get(), 3, 41).ok());
  branch->Park();
  harness.Audit();
  branch->MatchPrefix();
  ASSERT_TRUE(harness.Compute(branch.get(), 3).ok());
  ASSERT_TRUE(harness.store().Commit(writer.get(), std::move(branch), {.tokens = 51}).ok());
  harness.Audit();
}

TEST(HeavyTest, AFailedCopyOfTheTailLeavesAllAsItWas) {
  for (int length = 24; length < 32; ++length) {
    KvHarness harness;
    ASSERT_TRUE(harness.Create("a", Heavy(2, 9, 2, 8)).ok());
    ASSERT_TRUE(harness.Turn("a", SomeTokens(length), 7).ok());
    auto writer = harness.Admit("a");
    auto branch = *harness.store().Checkout(writer.get(), {});
    branch->Append(SomeTokens(12, 9));
    branch->MatchPrefix();
    harness.backend().fail_copy_in = 1;
    const int64_t free = harness.store().Snapshot().pages.free;
    const bool copies = length % kPageTokens > 0;
    EXPECT_EQ(branch->Prepare(branch->step_rows()).ok(), !copies);
    if (copies) {
      EXPECT_EQ(harness.store().Snapshot().pages.free, free);
    }
    harness.Audit();
    ASSERT_TRUE(harness.Compute(branch.get(), 7).ok());
    harness.Audit();
    harness.backend().fail_copy_in = 0;
  }
}

TEST(HeavyTest, Limits) {
  EXPECT_TRUE(ValidateRetention(Heavy(4, 10, 2, 8), 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention(Heavy(4, 10, 2, 6), 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention(Heavy(4, 10, 2, 0), 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention(Heavy(4, 10, -1, 8), 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention(Heavy(4, 10, 26, 8), 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention(Heavy(4, 97, 2, 8), 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention(Heavy(-1, 9, 2, 8), 100, 3, 4).ok());
  StoreOptions options = SmallOptions();
  options.local_windows = {5, 0, 5};
  KvHarness harness(options);
  EXPECT_EQ(base::GetErrorReason(harness.Create("a", Heavy(4, 10, 2, 8))),
            base::ErrorReason::kFeatureUnavailable);
}

TEST(HeavyTest, RefusedByNameWhereTheBackendHasNoScores) {
  StoreOptions options = SmallOptions();
  options.heavy_hitters = false;
  KvHarness harness(options);
  const absl::Status refused = harness.Create("a", Heavy(4, 10, 2, 8));
  EXPECT_EQ(base::GetErrorReason(refused), base::ErrorReason::kFeatureUnavailable);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("heavy_hitters"));
  EXPECT_TRUE(harness.Create("a", {}).ok());
}

}  // namespace
}  // namespace tokend::kv
