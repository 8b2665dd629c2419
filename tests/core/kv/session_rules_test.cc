// Who sees a session, how many there are, how long they live, what they hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/kv/session_store.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

using base::ErrorReason;
using base::GetErrorReason;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(SessionStoreTest, ReadsSlicesOfAnyVersion) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  auto empty = harness.store().ReadTokens("p", "a", {}, {}, 10);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->version, Version::kNone);
  ASSERT_TRUE(harness.Turn("a", SomeTokens(30)).ok());
  auto slice = harness.store().ReadTokens("p", "a", {}, 7, 10);
  ASSERT_TRUE(slice.ok());
  EXPECT_EQ(slice->start, 7);
  EXPECT_EQ(slice->total_tokens, 30);
  EXPECT_EQ(slice->version, Version{1});
  const Tokens all = SomeTokens(30);
  EXPECT_EQ(slice->tokens, Tokens(all.begin() + 7, all.begin() + 17));
  EXPECT_THAT(harness.store().ReadTokens("p", "a", {}, 30, 10)->tokens, IsEmpty());
  EXPECT_EQ(GetErrorReason(harness.store().ReadTokens("p", "a", {}, 31, 10).status()),
            ErrorReason::kBadPosition);
  EXPECT_EQ(GetErrorReason(harness.store().ReadTokens("p", "a", {}, -1, 10).status()),
            ErrorReason::kBadPosition);
}

TEST(SessionStoreTest, APrincipalSeesItsOwnSessionsAlone) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a", {}, "p").ok());
  ASSERT_TRUE(harness.Create("b", {}, "p").ok());
  ASSERT_TRUE(harness.Create("c", {}, "q").ok());
  EXPECT_EQ(harness.store().GetSession("q", "a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(harness.store().DeleteSession("q", "a", {}, false).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(harness.store().Fork("q", "a", {}, "d", {}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(harness.store().Admit({.principal = "q", .session_id = "a"}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(harness.Create("a", {}, "q").ok()) << "a name that another has tells nothing";
  EXPECT_THAT(harness.store().ListSessions("q", "", 10), SizeIs(2));
  const auto page = harness.store().ListSessions("p", "a", 10);
  ASSERT_THAT(page, SizeIs(1));
  EXPECT_EQ(page[0].id, "b");
  EXPECT_THAT(harness.store().ListSessions("p", "", 1), SizeIs(1));
}

TEST(SessionStoreTest, SessionsAreCountedAndBounded) {
  StoreOptions options = SmallOptions();
  options.max_sessions = 2;
  KvHarness harness(options);
  ASSERT_TRUE(harness.Create("a").ok());
  auto picked = harness.store().CreateSession("p", "", {});
  ASSERT_TRUE(picked.ok());
  EXPECT_FALSE(picked->id.empty());
  const absl::Status full = harness.Create("c");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorReason(full), ErrorReason::kSessionLimit);
  EXPECT_TRUE(base::GetErrorInfo(full)->retry_after.has_value());
  EXPECT_EQ(GetErrorReason(harness.store().Fork("p", "a", {}, "c", {}).status()),
            ErrorReason::kSessionLimit);
  EXPECT_EQ(GetErrorReason(harness.Create("a")), ErrorReason::kSessionExists);
  ASSERT_TRUE(harness.store().DeleteSession("p", "a", {}, false).ok());
  EXPECT_TRUE(harness.Create("c").ok());
}

TEST(SessionStoreTest, IdleSessionsAreDeleted) {
  StoreOptions options = SmallOptions();
  options.default_idle_ttl = absl::Seconds(100);
  KvHarness harness(options);
  ASSERT_TRUE(harness.Create("default").ok());
  ASSERT_TRUE(harness.store().CreateSession("p", "short", {.idle_ttl = absl::Seconds(10)}).ok());
  ASSERT_TRUE(harness.store().CreateSession("p", "busy", {.idle_ttl = absl::Seconds(10)}).ok());
  auto writer = harness.Admit("busy");
  harness.clock().Advance(absl::Seconds(9));
  ASSERT_TRUE(harness.Turn("short", SomeTokens(5)).ok());
  harness.clock().Advance(absl::Seconds(9));
  harness.store().Maintain();
  EXPECT_TRUE(harness.store().GetSession("p", "short").ok()) << "a turn renews it";
  harness.clock().Advance(absl::Seconds(2));
  harness.store().Maintain();
  EXPECT_FALSE(harness.store().GetSession("p", "short").ok());
  EXPECT_TRUE(harness.store().GetSession("p", "busy").ok());
  EXPECT_TRUE(harness.store().GetSession("p", "default").ok());
  writer.reset();
  harness.clock().Advance(absl::Seconds(80));
  harness.store().Maintain();
  EXPECT_FALSE(harness.store().GetSession("p", "busy").ok());
  EXPECT_FALSE(harness.store().GetSession("p", "default").ok());
  harness.Audit();
}

TEST(SessionStoreTest, AForkThatBecomesASessionLaterExpiresToo) {
  KvHarness harness;
  ASSERT_TRUE(harness.store().CreateSession("p", "a", {.idle_ttl = absl::Seconds(10)}).ok());
  const auto first = harness.Admit("a");
  auto fork = harness.Admit("a", WriteIntent::OnConflict::kFork);
  const std::string id = fork->fork_id();
  auto branch = *harness.store().Checkout(fork.get(), {});
  branch->Append({1, 2});
  ASSERT_TRUE(harness.store().DeleteSession("p", "a", {}, false).ok());
  harness.clock().Advance(absl::Seconds(11));
  harness.store().Maintain();
  ASSERT_TRUE(harness.store().Commit(fork.get(), std::move(branch), {.tokens = 2}).ok());
  fork.reset();
  harness.ExpectExpiry(id, absl::Seconds(10));
}

TEST(SessionStoreTest, EveryCallThatExpectsAnotherVersionIsCounted) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(5)).ok());
  const auto writer = harness.Admit("a", WriteIntent::OnConflict::kQueue, 2);
  EXPECT_EQ(GetErrorReason(harness.store().Checkout(writer.get(), {}).status()),
            ErrorReason::kVersionMismatch);
  EXPECT_EQ(harness.observer().conflicts, 1);
  EXPECT_EQ(GetErrorReason(harness.store().Rollback("p", "a", 1, 2).status()),
            ErrorReason::kVersionMismatch);
  EXPECT_EQ(harness.observer().conflicts, 2);
  EXPECT_EQ(GetErrorReason(harness.store().DeleteSession("p", "a", 2, false)),
            ErrorReason::kVersionMismatch);
  EXPECT_EQ(harness.observer().conflicts, 3);
}

TEST(SessionStoreTest, BadOptionsAndPoliciesAreNamed) {
  testing::FakeBackend backend({});
  StoreOptions options = SmallOptions();
  options.page_tokens = 0;
  EXPECT_EQ(SessionStore::Create(options, &backend, base::RealClock(), base::NullObserver())
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  KvHarness harness;
  const absl::Status bad = harness.Create("a", {RetentionPolicy::Kind::kSlidingWindow, 4, 0});
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Metadata(bad, "session.retention.sliding_window.window_tokens"),
            "0 is not in [1, 9996]");
}

}  // namespace
}  // namespace tokend::kv
