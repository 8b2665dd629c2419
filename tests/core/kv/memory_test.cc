// The page pool, pressure and failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/base/error.h"
#include "core/kv/page_pool.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

using base::ErrorReason;
using base::EvictionCause;
using base::GetErrorReason;
using ::testing::ElementsAre;

TEST(PagePoolTest, ALayersPagesAreNeighbours) {
  PagePool pool(2, 16 * 6, nullptr);
  std::vector<PageRef> pages;
  base::PageId last[2] = {base::PageId::kNone, base::PageId::kNone};
  int breaks = 0;
  for (int i = 0; i < 48; ++i) {
    for (int layer = 0; layer < 2; ++layer) {
      pages.push_back(pool.Take({.layer = layer}, last[layer]));
      ASSERT_TRUE(static_cast<bool>(pages.back()));
      const auto id = static_cast<int32_t>(pages.back().id());
      if (id != static_cast<int32_t>(last[layer]) + 1) ++breaks;
      last[layer] = pages.back().id();
    }
  }
  EXPECT_EQ(pool.free(), 0);
  EXPECT_LE(breaks, 6) << "one an extent";
  EXPECT_FALSE(static_cast<bool>(pool.Take({}, base::PageId::kNone)));
}

TEST(PagePoolTest, EveryPageIsHandedOutWhateverTheOrder) {
  std::minstd_rand random(5);
  struct Hook : StoreHooks {
    void OnFreed(base::PageId page) override { freed.push_back(page); }
    std::vector<base::PageId> freed;
  } hook;
  std::vector<base::PageId>& freed = hook.freed;
  PagePool pool(3, 16 * 4 + 7, &hook);
  std::vector<PageRef> pages;
  int64_t frees = 0;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0 && !pages.empty()) {
      const size_t at = random() % pages.size();
      std::swap(pages[at], pages.back());
      pages.pop_back();
      ++frees;
    } else {
      const base::PageId hint = pages.empty() ? base::PageId::kNone : pages.back().id();
      PageRef page = pool.Take({.layer = static_cast<int>(random() % 3)}, hint);
      EXPECT_EQ(static_cast<bool>(page), static_cast<int64_t>(pages.size()) < pool.total());
      if (page) pages.push_back(std::move(page));
    }
    ASSERT_EQ(pool.free() + static_cast<int64_t>(pages.size()), pool.total());
    if (i % 100 == 0) {
      std::set<base::PageId> distinct;
      for (const PageRef& page : pages) distinct.insert(page.id());
      ASSERT_EQ(distinct.size(), pages.size());
    }
  }
  EXPECT_EQ(static_cast<int64_t>(freed.size()), frees);
}

TEST(PagePoolTest, APageGivenUpUnderStepsWaitsForTheNewest) {
  struct Hook : StoreHooks {
    void OnFreed(base::PageId page) override { freed.push_back(static_cast<int>(page)); }
    std::vector<int> freed;
  } hook;
  PagePool pool(1, 16, &hook);
  std::vector<PageRef> pages;
  for (int i = 0; i < 4; ++i) pages.push_back(pool.Take({}, base::PageId::kNone));
  pages[0].Reset();
  EXPECT_THAT(hook.freed, ElementsAre(0)) << "no step is in flight";
  pool.BeginStep();
  pages[1].Reset();
  pool.BeginStep();
  pages[2].Reset();
  EXPECT_EQ(pool.quarantined(), 2);
  EXPECT_EQ(pool.free(), 13);
  EXPECT_EQ(pool.unowned(), 15);
  while (PageRef page = pool.Take({}, base::PageId::kNone)) {
    EXPECT_NE(static_cast<int>(page.id()), 1);
    EXPECT_NE(static_cast<int>(page.id()), 2);
    pages.push_back(std::move(page));
  }
  pages.resize(4);
  hook.freed.clear();
  pool.EndStep();
  EXPECT_THAT(hook.freed, ElementsAre(1)) << "the second step has page 2 in its tables";
  pool.EndStep();
  EXPECT_FALSE(pool.step_in_flight());
  EXPECT_EQ(pool.quarantined(), 0);
  pages.clear();
  EXPECT_EQ(pool.free(), 16);
}

// Sessions of 8 tokens: 2 nodes of 3 pages, all whole.
KvHarness SmallPool(int64_t nodes, int max_versions = 16) {
  StoreOptions options = SmallOptions();
  options.pages = nodes * 3;
  options.max_versions = max_versions;
  return KvHarness(options);
}

int64_t Resident(KvHarness* harness, absl::string_view id) {
  return harness->store().GetSession("p", id)->resident_tokens;
}

void Idle(KvHarness* harness, absl::string_view id, int seed) {
  ASSERT_TRUE(harness->Turn(id, SomeTokens(8, seed)).ok());
  harness->clock().Advance(absl::Seconds(1));
}

TEST(PressureTest, CachedPagesGoFirstOldestFirstLeavesFirst) {
  KvHarness harness = SmallPool(8);
  ASSERT_TRUE(harness.Create("idle").ok());
  Idle(&harness, "idle", 1);
  for (int seed : {2, 3}) {  // two cached chains
    auto branch = harness.store().CheckoutEphemeral("p");
    branch->Append(SomeTokens(8, seed));
    branch->MatchPrefix();
    ASSERT_TRUE(harness.Compute(branch.get()).ok());
  }
  EXPECT_EQ(harness.store().Snapshot().pages.cached, 4 * 3);
  const auto cached = [&](int seed) {
    auto branch = harness.store().CheckoutEphemeral("p");
    branch->Append(Concat(SomeTokens(8, seed), {1}));
    branch->MatchPrefix();
    return branch->computed();
  };
  // 2 nodes are free; of the third, the oldest chain's leaf must go.
  auto branch = harness.store().CheckoutEphemeral("p");
  branch->Append(SomeTokens(12, 4));
  ASSERT_TRUE(branch->Prepare(12).ok());
  EXPECT_EQ(harness.observer().evicted[EvictionCause::kPressure], 3);
  EXPECT_EQ(Resident(&harness, "idle"), 8);
  harness.Audit();
  EXPECT_EQ(cached(2), 4);
  EXPECT_EQ(cached(3), 8);
}

// One who owns a session's tokens owns what is left of their KV, and what comes back.
TEST(PressureTest, AForkOfARetiredSessionHasItsKvBackWithItsSource) {
  KvHarness harness = SmallPool(40);
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(40)).ok());
  const auto push_out = [&](int nodes) {
    auto branch = harness.store().CheckoutEphemeral("q");
    branch->Append(SomeTokens(4 * nodes, 3));
    return branch->Prepare(4 * nodes);
  };
  ASSERT_TRUE(push_out(36).ok());
  EXPECT_EQ(Resident(&harness, "a"), 16);
  ASSERT_TRUE(harness.store().Fork("p", "a", {}, "b", {}).ok());
  ASSERT_TRUE(harness.store().Fork("p", "a", {}, "short", 10).ok());
  EXPECT_EQ(Resident(&harness, "b"), 16);
  EXPECT_EQ(Resident(&harness, "short"), 10);
  EXPECT_EQ(harness.store().Snapshot().pages.private_pages, 3);
  EXPECT_EQ(harness.store().Snapshot().pages.shared, 3 * 3);
  harness.Audit();
  ASSERT_TRUE(harness.Turn("a", {1}).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 24);
  EXPECT_EQ(Resident(&harness, "b"), 40);
  EXPECT_EQ(Resident(&harness, "short"), 10);
  EXPECT_EQ(harness.store().Snapshot().pages.shared, 10 * 3);
  harness.Audit();
  ASSERT_TRUE(push_out(40).ok());
  for (const char* id : {"a", "b", "short"}) EXPECT_EQ(Resident(&harness, id), 0);
  harness.Audit();
}

// The stem of two chains goes after both, and by its own last use.
TEST(PressureTest, AStemGoesAfterItsBranchesAndByItsOwnUse) {
  KvHarness harness = SmallPool(8);
  const auto run = [&](const Tokens& tokens) {
    auto branch = harness.store().CheckoutEphemeral("p");
    branch->Append(tokens);
    branch->MatchPrefix();
    ASSERT_TRUE(harness.Compute(branch.get()).ok());
  };
  const Tokens stem = SomeTokens(4, 1);
  run(Concat(stem, SomeTokens(4, 2)));
  run(SomeTokens(4, 3));
  run(Concat(stem, SomeTokens(4, 4)));
  run(SomeTokens(4, 5));
  // The cached chains, none of which is used by asking.
  const auto left = [&](int nodes) {
    auto branch = harness.store().CheckoutEphemeral("q");
    branch->Append(SomeTokens(4 * (8 - nodes), 6));
    EXPECT_TRUE(branch->Prepare(4 * (8 - nodes)).ok());
    harness.Audit();
    std::set<Tokens> chains;
    for (Node* node : harness.audit().ResidentNodes()) {
      Tokens tokens;
      harness.audit().ReadTokens(node, (node->index + 1) * 4, &tokens);
      chains.insert(tokens);
    }
    return chains;
  };
  const Tokens second = Concat(stem, SomeTokens(4, 4));
  EXPECT_EQ(left(4), (std::set<Tokens>{SomeTokens(4, 3), stem, second, SomeTokens(4, 5)}));
  EXPECT_EQ(left(3), (std::set<Tokens>{stem, second, SomeTokens(4, 5)}));
  EXPECT_EQ(left(2), (std::set<Tokens>{stem, SomeTokens(4, 5)}));
  EXPECT_EQ(left(1), (std::set<Tokens>{SomeTokens(4, 5)}));
}

TEST(PressureTest, ThenOlderVersionsThenIdleSessionsLeastRecentlyUsedFirst) {
  KvHarness harness = SmallPool(10);
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(harness.Create(id).ok());
  Idle(&harness, "a", 1);
  // The second version parts from the first at its start: 2 nodes of an older
  // version.
  ASSERT_TRUE(harness.Turn("a", SomeTokens(8, 2), 64, {}, 0).ok());
  Idle(&harness, "b", 3);
  Idle(&harness, "c", 4);
  ASSERT_TRUE(harness.store().Rollback("p", "a", 2, {}).ok());  // now used last
  const auto take = [&](int nodes) {
    auto branch = harness.store().CheckoutEphemeral("p");
    branch->Append(SomeTokens(4 * nodes, 9));
    EXPECT_TRUE(branch->Prepare(4 * nodes).ok());
    harness.Audit();
    return branch;
  };
  EXPECT_EQ(harness.store().ObtainablePages(), 30);
  {
    auto branch = take(4);
    EXPECT_EQ(harness.observer().evicted[EvictionCause::kPressure], 2 * 3);
    EXPECT_EQ(harness.observer().evicted[EvictionCause::kIdle], 0);
    EXPECT_EQ(Resident(&harness, "b"), 8);
  }
  {
    auto branch = take(6);
    EXPECT_EQ(harness.observer().evicted[EvictionCause::kIdle], 2 * 3);
    EXPECT_EQ(Resident(&harness, "b"), 0);
    EXPECT_EQ(Resident(&harness, "c"), 8);
    EXPECT_EQ(Resident(&harness, "a"), 8);
  }
  // Tokens stay; the next turn computes again.
  EXPECT_EQ(harness.Read("b"), SomeTokens(8, 3));
  ASSERT_TRUE(harness.Turn("b", {5}).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 8);
  EXPECT_EQ(harness.observer().recomputed, 8);
  harness.Audit();
}

TEST(PressureTest, PartOfAnIdleSessionsKvIsEnough) {
  KvHarness harness = SmallPool(6);
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(16, 1)).ok());
  {
    auto branch = harness.store().CheckoutEphemeral("p");
    branch->Append(SomeTokens(12, 2));
    ASSERT_TRUE(branch->Prepare(12).ok());
  }
  EXPECT_EQ(Resident(&harness, "a"), 12) << "its end went";
  ASSERT_TRUE(harness.Turn("a", {1, 2, 3, 4}).ok());
  EXPECT_EQ(harness.last_stats().cached_tokens, 12);
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 4);
  harness.Audit();
}

TEST(PressureTest, WhatRunsIsNeverTaken) {
  KvHarness harness = SmallPool(6);
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(12, 1)).ok());
  auto writer = harness.Admit("a");
  const auto running = *harness.store().Checkout(writer.get(), {});
  EXPECT_EQ(harness.store().ObtainablePages(), 9);
  auto branch = harness.store().CheckoutEphemeral("p");
  branch->Append(SomeTokens(32, 2));
  branch->MatchPrefix();
  EXPECT_EQ(branch->PagesNeeded(16, 64), 12);
  const absl::Status full = branch->Prepare(16);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorReason(full), ErrorReason::kKvPoolFull);
  EXPECT_TRUE(base::GetErrorInfo(full)->retry_after.has_value());
  EXPECT_FALSE(base::GetErrorInfo(branch->Prepare(32))->retry_after.has_value())
      << "more than the pool";
  EXPECT_EQ(harness.store().Snapshot().pages.free, 9) << "nothing was taken";
  EXPECT_TRUE(branch->Prepare(12).ok());
  EXPECT_EQ(Resident(&harness, "a"), 12);
  harness.Audit();
}

TEST(PressureTest, PinnedSessionsKeepTheirKv) {
  KvHarness harness = SmallPool(6);
  ASSERT_TRUE(harness.store().CreateSession("p", "a", {.pinned = true}).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(8, 1)).ok());
  EXPECT_EQ(harness.store().Snapshot().pages.pinned, 6);
  EXPECT_EQ(harness.store().ObtainablePages(), 12);
  ASSERT_TRUE(harness.store().Fork("p", "a", {}, "b", {}).ok());
  EXPECT_FALSE(harness.store().GetSession("p", "b")->spec.pinned);
  EXPECT_EQ(harness.store().Snapshot().pages.pinned, 6);
  {
    auto branch = harness.store().CheckoutEphemeral("p");
    branch->Append(SomeTokens(20, 2));
    EXPECT_TRUE(branch->Prepare(16).ok());
    EXPECT_FALSE(branch->Prepare(20).ok());
    harness.Audit();
  }
  EXPECT_EQ(Resident(&harness, "a"), 8);
  ASSERT_TRUE(harness.store().DeleteSession("p", "a", {}, false).ok());
  harness.store().Maintain();
  EXPECT_EQ(harness.store().Snapshot().pages.pinned, 0);
}

TEST(PressureTest, OldVersionsOfAWindowedSessionGiveWay) {
  KvHarness harness = SmallPool(12);
  ASSERT_TRUE(harness.Create("a", {RetentionPolicy::Kind::kSlidingWindow, 0, 8}).ok());
  for (int turn = 0; turn < 12; ++turn) {
    ASSERT_TRUE(harness.Turn("a", SomeTokens(9, turn), 3).ok());
    EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
    harness.Audit();
  }
  EXPECT_GT(harness.observer().evicted[EvictionCause::kPressure], 0);
  EXPECT_EQ(harness.observer().evicted[EvictionCause::kIdle], 0);
}

// Runs a fixed story and fails its n-th page copy. Whatever fails, the sessions
// are as before that turn. False: the story has no n-th.
bool FailNthCopy(int n) {
  KvHarness harness;
  EXPECT_TRUE(harness.Create("a").ok());
  harness.backend().fail_copy_in = n;
  bool failed = false;
  Tokens want;
  for (int turn = 0; turn < 5; ++turn) {
    const Tokens input = SomeTokens(3 + turn, turn);
    auto version = harness.Turn("a", input, 2);
    if (version.ok()) {
      want = Concat(want, input);
    } else {
      failed = true;
      EXPECT_EQ(GetErrorReason(version.status()), ErrorReason::kBackendFailed);
    }
    harness.store().Maintain();
    harness.Audit();
    EXPECT_EQ(harness.Read("a"), want);
  }
  return failed;
}

TEST(FailureTest, AFailedCopyLeavesThePreviousVersion) {
  int n = 1;
  while (FailNthCopy(n)) ++n;
  EXPECT_GT(n, 3);
}

// The same with a pool that gets ever larger, so that each allocation in turn is
// the one that fails.
TEST(FailureTest, AFailedAllocationLeavesThePreviousVersion) {
  bool failed = true;
  int64_t pages = 3;
  for (; failed; ++pages) {
    StoreOptions options = SmallOptions();
    options.pages = pages;
    KvHarness harness(options);
    ASSERT_TRUE(harness.Create("a").ok());
    failed = false;
    Tokens want;
    for (int turn = 0; turn < 5; ++turn) {
      const Tokens input = SomeTokens(3 + turn, turn);
      auto version = harness.Turn("a", input, 2);
      if (version.ok()) {
        want = Concat(want, input);
      } else {
        failed = true;
        EXPECT_EQ(GetErrorReason(version.status()), ErrorReason::kKvPoolFull);
      }
      harness.Audit();
      EXPECT_EQ(harness.Read("a"), want);
    }
  }
  EXPECT_GT(pages, 10);
}

}  // namespace
}  // namespace tokend::kv
