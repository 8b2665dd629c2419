// Branches that give up their KV and go on later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "core/base/error.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

using base::EvictionCause;

constexpr RetentionPolicy kWindow = {RetentionPolicy::Kind::kSlidingWindow, 2, 8};

// Takes `nodes` nodes of the pool for as long as the result lives.
std::unique_ptr<Branch> Occupy(KvHarness* harness, int nodes, int seed = 9) {
  auto branch = harness->store().CheckoutEphemeral("other");
  branch->Append(SomeTokens(4 * nodes, seed));
  EXPECT_TRUE(branch->Prepare(4 * nodes).ok());
  return branch;
}

KvHarness Pool(int64_t nodes) {
  StoreOptions options = SmallOptions();
  options.pages = nodes * 3;
  return KvHarness(options);
}

TEST(ParkingTest, WhatIsStillCachedIsNotComputedAgain) {
  KvHarness harness = Pool(20);
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(10)).ok());
  auto writer = harness.Admit("a");
  auto branch = *harness.store().Checkout(writer.get(), {});
  branch->Append(SomeTokens(12, 2));
  branch->MatchPrefix();
  ASSERT_TRUE(harness.Compute(branch.get(), 5).ok());
  const BranchStats before = branch->stats();
  branch->Park();
  EXPECT_TRUE(branch->parked());
  EXPECT_EQ(branch->computed(), 0);
  EXPECT_EQ(branch->tokens(), 22);
  harness.Audit();
  branch->MatchPrefix();
  EXPECT_FALSE(branch->parked());
  EXPECT_EQ(branch->computed(), 20) << "whole nodes stayed cached";
  ASSERT_TRUE(harness.Compute(branch.get()).ok());
  harness.Audit();
  EXPECT_EQ(branch->stats().cached_tokens, before.cached_tokens) << "the first match counts";
  EXPECT_EQ(branch->stats().recomputed_tokens, 2);
  ASSERT_TRUE(harness.store().Commit(writer.get(), std::move(branch), {.tokens = 22}).ok());
  EXPECT_EQ(harness.Read("a"), Concat(SomeTokens(10), SomeTokens(12, 2)));
  harness.Audit();
}

// What it had computed again lies behind the window of the version that it would be.
TEST(ParkingTest, ACommitThatFailsMidwayLeavesNoPageBehind) {
  StoreOptions options = SmallOptions();
  options.local_windows = {0, 9, 9};
  KvHarness harness(options);
  ASSERT_TRUE(harness.Create("a").ok());
  auto writer = harness.Admit("a");
  auto branch = *harness.store().Checkout(writer.get(), {});
  branch->Append(SomeTokens(26));
  ASSERT_TRUE(harness.Compute(branch.get()).ok());
  branch->Park();
  (void)Occupy(&harness, static_cast<int>(options.pages / 3));
  branch->MatchPrefix();
  ASSERT_TRUE(harness.Compute(branch.get(), 13, 13).ok());
  int calls = 0;
  harness.tags().on_fault = [&calls](FaultPoint point) {
    const bool second = point == FaultPoint::kSealNode && ++calls == 2;
    return second ? absl::InternalError("planned") : absl::OkStatus();
  };
  EXPECT_FALSE(harness.store().Commit(writer.get(), std::move(branch), {.tokens = 26}).ok());
  harness.tags().on_fault = nullptr;
  harness.store().Maintain();
  harness.Audit();
}

// Under each policy, parked at each position, with all that was computed evicted.
TEST(ParkingTest, WhatWasEvictedIsComputedAgainAlike) {
  for (const RetentionPolicy& policy :
       {RetentionPolicy{}, kWindow, RetentionPolicy{RetentionPolicy::Kind::kLayered, 0, 5, 1}}) {
    for (int at = 1; at <= 22; at += 3) {
      KvHarness harness = Pool(16);
      ASSERT_TRUE(harness.Create("a", policy).ok());
      ASSERT_TRUE(harness.Turn("a", SomeTokens(10)).ok());
      auto writer = harness.Admit("a");
      auto branch = *harness.store().Checkout(writer.get(), {});
      branch->Append(SomeTokens(20, 2));
      branch->MatchPrefix();
      const int64_t matched = branch->computed();
      if (at > matched) {
        ASSERT_TRUE(harness.Compute(branch.get(), 3, at).ok());
      }
      const int64_t computed = branch->computed();
      const int64_t evicted = branch->stats().evicted_tokens;
      branch->Park();
      EXPECT_EQ(branch->stats().evicted_tokens, computed == matched ? 0 : evicted);
      EXPECT_EQ(harness.store().ObtainablePages(), 16 * 3) << "its session's own KV included";
      Occupy(&harness, 16).reset();
      harness.Audit();
      branch->MatchPrefix();
      EXPECT_EQ(branch->computed(), 0);
      ASSERT_TRUE(harness.Compute(branch.get(), 3).ok());  // holds the logits against a reference
      EXPECT_EQ(branch->stats().recomputed_tokens, std::max<int64_t>(10, computed));
      harness.Audit();
      ASSERT_TRUE(harness.store().Commit(writer.get(), std::move(branch), {.tokens = 30}).ok());
      writer.reset();
      ASSERT_TRUE(harness.Turn("a", SomeTokens(4, 3)).ok());
      harness.Audit();
    }
  }
}

TEST(ParkingTest, AParkedBranchCommits) {
  for (const RetentionPolicy& policy : {RetentionPolicy{}, kWindow}) {
    KvHarness harness = Pool(16);
    ASSERT_TRUE(harness.Create("a", policy).ok());
    ASSERT_TRUE(harness.Turn("a", SomeTokens(10)).ok());
    auto writer = harness.Admit("a");
    auto branch = *harness.store().Checkout(writer.get(), {});
    branch->Append(SomeTokens(20, 2));
    branch->MatchPrefix();
    ASSERT_TRUE(harness.Compute(branch.get(), 3).ok());
    branch->Park();
    Occupy(&harness, 16).reset();
    ASSERT_TRUE(harness.store().Commit(writer.get(), std::move(branch), {.tokens = 27}).ok());
    writer.reset();
    harness.Audit();
    Tokens want = Concat(SomeTokens(10), SomeTokens(20, 2));
    want.resize(27);
    EXPECT_EQ(harness.Read("a"), want);
    ASSERT_TRUE(harness.Turn("a", SomeTokens(4, 3)).ok());
    EXPECT_EQ(harness.last_stats().recomputed_tokens, 27);
    harness.Audit();
  }
}

TEST(ParkingTest, ParkedBranchesMayBeDroppedAndTheirSessionDeleted) {
  KvHarness harness = Pool(16);
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(harness.Create(id).ok());
    ASSERT_TRUE(harness.Turn(id, SomeTokens(10)).ok());
    auto writer = harness.Admit(id);
    auto branch = *harness.store().Checkout(writer.get(), {});
    branch->Append(SomeTokens(9, 2));
    branch->MatchPrefix();
    ASSERT_TRUE(harness.Compute(branch.get()).ok());
    branch->Park();
    if (*id == 'b') {
      ASSERT_TRUE(harness.store().DeleteSession("p", "b", {}, false).ok());
      harness.store().Maintain();
      EXPECT_FALSE(writer->status().ok());
    }
    harness.Audit();
    branch.reset();
    harness.Audit();
  }
  EXPECT_EQ(harness.observer().ops[base::SessionOp::kDrop], 2);
  EXPECT_EQ(harness.Read("a"), SomeTokens(10));
}

// A turn that waits in line, or whose branch is parked, keeps no KV from others;
// sessions that nobody waits for go first all the same.
TEST(ParkingTest, SessionsWithQueuedOrParkedTurnsGiveTheirKv) {
  KvHarness harness = Pool(9);
  for (const char* id : {"queued", "parked", "idle"}) {
    ASSERT_TRUE(harness.Create(id).ok());
    ASSERT_TRUE(harness.Turn(id, SomeTokens(8, *id)).ok());
    harness.clock().Advance(absl::Seconds(1));
  }
  const auto resident = [&](const char* id) {
    return harness.store().GetSession("p", id)->resident_tokens;
  };
  auto queued = harness.Admit("queued");
  auto writer = harness.Admit("parked");
  auto branch = *harness.store().Checkout(writer.get(), {});
  EXPECT_EQ(harness.store().ObtainablePages(), 7 * 3);
  branch->Append({1});
  branch->MatchPrefix();
  branch->Park();
  EXPECT_EQ(harness.store().ObtainablePages(), 9 * 3);
  {
    auto other = Occupy(&harness, 5);
    EXPECT_EQ(resident("idle"), 0);
    EXPECT_EQ(resident("queued"), 8);
    EXPECT_EQ(resident("parked"), 8);
    harness.Audit();
  }
  auto other = Occupy(&harness, 9, 8);
  EXPECT_EQ(resident("queued"), 0);
  EXPECT_EQ(resident("parked"), 0);
  harness.Audit();
}

// Prefix reuse is counted once a turn, as it was when the turn first ran.
TEST(ParkingTest, ATurnIsOneQueryOfThePrefixIndex) {
  KvHarness harness = Pool(16);
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(8)).ok());
  const int64_t queried = harness.observer().queried;
  auto branch = harness.store().CheckoutEphemeral("p");
  branch->Append(Concat(SomeTokens(8), SomeTokens(4, 2)));
  for (int i = 0; i < 3; ++i) {
    branch->MatchPrefix();
    branch->Park();
  }
  EXPECT_EQ(harness.observer().queried, queried);
  ASSERT_TRUE(harness.store().DeleteSession("p", "a", {}, false).ok());
  harness.store().Maintain();
  Occupy(&harness, 16).reset();
  branch->MatchPrefix();
  ASSERT_TRUE(harness.Compute(branch.get(), 3).ok());
  EXPECT_EQ(branch->stats().cached_tokens, 0) << "what was lent was lost before it ran";
  EXPECT_EQ(branch->stats().recomputed_tokens, 0);
  branch->Park();
  branch->MatchPrefix();
  ASSERT_TRUE(harness.Compute(branch.get(), 3).ok());
  EXPECT_EQ(harness.observer().queried, queried + 12);
  EXPECT_EQ(harness.observer().hits, 0);
}

}  // namespace
}  // namespace tokend::kv
