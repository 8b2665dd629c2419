// What a principal may pin, and what no other can take from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

using base::ErrorReason;
using base::EvictionCause;
using base::GetErrorReason;

// Nodes of 4 tokens and 3 pages.
KvHarness Pool(int64_t nodes, std::map<std::string, int64_t> quota_nodes) {
  StoreOptions options = SmallOptions();
  options.pages = nodes * 3;
  for (const auto& [principal, quota] : quota_nodes) options.quota_pages[principal] = quota * 3;
  return KvHarness(options);
}

// A session with a version of `nodes` whole nodes.
void Hold(KvHarness* harness, const std::string& principal, const std::string& id, int nodes,
          bool pinned = false) {
  static int seed = 100;
  WriteIntent intent;
  intent.principal = principal;
  intent.session_id = id;
  intent.allow_missing = true;
  intent.spec_if_missing = SessionSpec{.pinned = pinned};
  auto writer = harness->store().Admit(intent);
  ASSERT_TRUE(writer.ok()) << writer.status();
  auto branch = *harness->store().Checkout(writer->get(), {});
  branch->Append(SomeTokens(4 * nodes, ++seed));
  branch->MatchPrefix();
  ASSERT_TRUE(harness->Compute(branch.get()).ok());
  const int64_t tokens = branch->tokens();
  ASSERT_TRUE(harness->store().Commit(writer->get(), std::move(branch), {.tokens = tokens}).ok());
  writer->reset();
  harness->clock().Advance(absl::Seconds(1));
  harness->Audit();
}

// Takes so many nodes for a turn of `principal`, for as long as it lives.
std::unique_ptr<Branch> Take(KvHarness* harness, const std::string& principal, int nodes) {
  static int seed = 1000;
  auto branch = harness->store().CheckoutEphemeral(principal);
  branch->Append(SomeTokens(4 * nodes, ++seed));
  branch->MatchPrefix();
  const absl::Status status = branch->Prepare(branch->tokens() - branch->computed());
  harness->Audit();
  if (status.ok()) return branch;
  EXPECT_EQ(GetErrorReason(status), ErrorReason::kKvPoolFull);
  return nullptr;
}

int64_t Resident(KvHarness* harness, const std::string& principal, const std::string& id) {
  return harness->store().GetSession(principal, id)->resident_tokens / 4;
}

TEST(QuotaTest, WhatAPrincipalHoldsWithinItsQuotaNoOtherTakes) {
  KvHarness harness = Pool(8, {{"a", 4}});
  Hold(&harness, "a", "1", 2);
  Hold(&harness, "a", "2", 2);
  EXPECT_EQ(harness.store().ObtainablePages("b"), 4 * 3);
  EXPECT_EQ(harness.store().ObtainablePages("a"), 8 * 3);
  EXPECT_EQ(Take(&harness, "b", 5), nullptr);
  EXPECT_NE(Take(&harness, "b", 4), nullptr);
  EXPECT_EQ(Resident(&harness, "a", "1"), 2);
  EXPECT_EQ(Resident(&harness, "a", "2"), 2);
  EXPECT_NE(Take(&harness, "a", 7), nullptr) << "its own it may take";
}

TEST(QuotaTest, WhatIsAboveAQuotaGoesFirstAndNoMore) {
  KvHarness harness = Pool(10, {{"a", 4}});
  Hold(&harness, "b", "1", 2);
  for (const char* id : {"1", "2", "3"}) Hold(&harness, "a", id, 2);
  {
    const auto branch = Take(&harness, "b", 4);
    ASSERT_NE(branch, nullptr);
    EXPECT_EQ(harness.observer().evicted[EvictionCause::kQuota], 2 * 3);
    EXPECT_EQ(harness.observer().evicted[EvictionCause::kIdle], 0);
    EXPECT_EQ(Resident(&harness, "a", "1"), 0) << "the one used longest ago";
    EXPECT_EQ(Resident(&harness, "b", "1"), 2);
  }
  EXPECT_EQ(Take(&harness, "c", 7), nullptr);
  EXPECT_NE(Take(&harness, "c", 6), nullptr);
  EXPECT_EQ(Resident(&harness, "b", "1"), 0);
  EXPECT_EQ(Resident(&harness, "a", "2") + Resident(&harness, "a", "3"), 4);
}

TEST(QuotaTest, ASessionAboveTheQuotaCostsNoOtherItsProtection) {
  KvHarness harness = Pool(12, {{"a", 4}});
  for (const char* id : {"1", "2"}) Hold(&harness, "a", id, 2);
  Hold(&harness, "a", "large", 5);
  EXPECT_EQ(harness.store().ObtainablePages("b"), 8 * 3);
  EXPECT_NE(Take(&harness, "b", 8), nullptr);
  EXPECT_EQ(Resident(&harness, "a", "1"), 2);
  EXPECT_EQ(Resident(&harness, "a", "2"), 2);
  EXPECT_LT(Resident(&harness, "a", "large"), 5);
}

TEST(QuotaTest, APinnedSessionNeedsSomeQuota) {
  KvHarness harness = Pool(8, {{"a", 2}, {"z", 0}});
  const auto create = [&](const char* principal, const char* id) {
    return harness.store().CreateSession(principal, id, {.pinned = true}).status();
  };
  EXPECT_TRUE(create("a", "1").ok());
  EXPECT_TRUE(create("b", "1").ok()) << "no quota, no bound";
  const absl::Status refused = create("z", "1");
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorReason(refused), ErrorReason::kQuotaExceeded);
  EXPECT_EQ(Metadata(refused, "principal"), "z");
  EXPECT_EQ(Metadata(refused, "needed_pages"), "3");
  EXPECT_EQ(Metadata(refused, "quota_pages"), "0");
  EXPECT_FALSE(harness.store().GetSession("z", "1").ok());
  Hold(&harness, "a", "1", 2);
  EXPECT_EQ(GetErrorReason(create("a", "2")), ErrorReason::kQuotaExceeded);
  EXPECT_TRUE(harness.store().CreateSession("a", "3", {}).ok());
}

TEST(QuotaTest, ARollbackMayNotPinMoreThanTheQuota) {
  KvHarness harness = Pool(8, {{"p", 3}});
  ASSERT_TRUE(harness.store().CreateSession("p", "a", {.pinned = true}).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(12)).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(4, 2), 64, {}, 0).ok());
  Hold(&harness, "p", "b", 1, true);
  const absl::Status refused = harness.store().Rollback("p", "a", 1, {}).status();
  EXPECT_EQ(GetErrorReason(refused), ErrorReason::kQuotaExceeded);
  EXPECT_EQ(Metadata(refused, "needed_pages"), "12");
  harness.store().Maintain();
  harness.Audit();
  ASSERT_TRUE(harness.store().DeleteSession("p", "b", {}, false).ok());
  EXPECT_TRUE(harness.store().Rollback("p", "a", 1, {}).ok());
  harness.Audit();
}

TEST(QuotaTest, ARollbackMayNotPinWhatATurnNeeds) {
  KvHarness harness = Pool(10, {});
  ASSERT_TRUE(harness.store().CreateSession("p", "a", {.pinned = true}).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(6 * 4)).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(4, 2), 64, {}, 0).ok());
  auto branch = harness.store().CheckoutEphemeral("p");
  const TurnRoom room = harness.store().RoomFor(*branch, nullptr);
  ASSERT_TRUE(harness.store().Reserve(branch.get(), nullptr, room, 5 * 3, 0).ok());
  const absl::Status refused = harness.store().Rollback("p", "a", 1, {}).status();
  EXPECT_EQ(GetErrorReason(refused), ErrorReason::kKvPoolFull);
  EXPECT_TRUE(base::GetErrorInfo(refused)->retry_after.has_value());
  harness.store().Maintain();
  harness.Audit();
  // What both have is no loss.
  branch = harness.store().CheckoutEphemeral("p");
  branch->Append(SomeTokens(2 * 4 + 1));
  branch->MatchPrefix();
  ASSERT_EQ(branch->computed(), 2 * 4);
  ASSERT_TRUE(harness.store().Reserve(branch.get(), nullptr, room, 6 * 3, 0).ok());
  EXPECT_TRUE(harness.store().Rollback("p", "a", 1, {}).ok());
  // There is less now than that turn was told.
  branch = harness.store().CheckoutEphemeral("p");
  EXPECT_EQ(GetErrorReason(harness.store().Reserve(branch.get(), nullptr, room, 6 * 3, 0)),
            ErrorReason::kKvPoolFull);
  harness.Audit();
}

TEST(QuotaTest, RoomIsWhatPinsAndQuotasLeave) {
  KvHarness harness = Pool(20, {{"a", 4}, {"b", 5}});
  Hold(&harness, "a", "1", 2);
  Hold(&harness, "b", "1", 3, true);
  Hold(&harness, "c", "1", 1, true);
  Hold(&harness, "c", "2", 6);
  auto other = harness.store().CheckoutEphemeral("c");
  const TurnRoom room = harness.store().RoomFor(*other, nullptr);
  EXPECT_EQ(room.total_pages, 20 * 3);
  EXPECT_EQ(room.pages, (20 - 2 - 3 - 1) * 3);
  EXPECT_FALSE(room.pin_pages.has_value());
  WriteIntent intent;
  intent.principal = "b";
  intent.session_id = "1";
  auto writer = *harness.store().Admit(intent);
  {
    auto branch = *harness.store().Checkout(writer.get(), {});
    const TurnRoom own = harness.store().RoomFor(*branch, writer.get());
    EXPECT_EQ(own.pages, (20 - 2 - 1) * 3) << "its own pins are its own";
    EXPECT_EQ(own.quota_pages, 5 * 3);
    EXPECT_EQ(own.pin_pages, 5 * 3);
    ASSERT_TRUE(harness.store().Reserve(branch.get(), writer.get(), own, 5 * 3, 5 * 3).ok());
    EXPECT_EQ(harness.store().RoomFor(*other, nullptr).pages, (20 - 2 - 5 - 1) * 3);
    EXPECT_EQ(GetErrorReason(harness.store().CreateSession("b", "2", {.pinned = true}).status()),
              ErrorReason::kQuotaExceeded);
  }
  writer.reset();
  EXPECT_EQ(harness.store().RoomFor(*other, nullptr).pages, (20 - 2 - 3 - 1) * 3);
  harness.Audit();
}

// The audit holds what each principal can have against a recount of its own.
TEST(QuotaTest, RandomHoldingsCountRight) {
  std::minstd_rand random(4);
  KvHarness harness = Pool(24, {{"a", 5}, {"b", 9}});
  for (int i = 0; i < 400; ++i) {
    const std::string principal(1, static_cast<char>('a' + random() % 3));
    const std::string id = absl::StrCat(random() % 4);
    switch (random() % 6) {
      case 0:
        (void)Take(&harness, principal, 1 + static_cast<int>(random() % 16));
        break;
      case 1:
        (void)harness.store().DeleteSession(principal, id, {}, true);
        break;
      case 2:
        (void)harness.store().Fork(principal, id, {}, absl::StrCat(random() % 4), {});
        harness.Audit();
        break;
      default: {
        const auto info = harness.store().GetSession(principal, id);
        if (info.ok() && info->tokens > 20) break;
        if (harness.store().ObtainablePages(principal) >= 12 * 3) {
          Hold(&harness, principal, id, 1 + static_cast<int>(random() % 4), random() % 12 == 0);
        }
      }
    }
  }
  EXPECT_GT(harness.observer().evicted[EvictionCause::kQuota], 0);
}

}  // namespace
}  // namespace tokend::kv
