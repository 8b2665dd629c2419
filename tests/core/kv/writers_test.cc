// Who may write to a session, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

using base::ErrorReason;
using base::GetErrorReason;
using OnConflict = WriteIntent::OnConflict;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(WritersTest, QueuedWritersRunInOrderOfArrival) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  std::vector<std::unique_ptr<Writer>> writers;
  for (int i = 0; i < 5; ++i) writers.push_back(harness.Admit("a"));
  EXPECT_EQ(harness.store().GetSession("p", "a")->active_turns, 5);
  Tokens want;
  for (int i = 0; i < 5; ++i) {
    for (int j = i; j < 5; ++j) EXPECT_EQ(writers[j]->ready(), j == i);
    if (i == 1) {
      writers[3].reset();  // gave up while it waited
      writers[3] = harness.Admit("a");
      std::swap(writers[3], writers[4]);
    }
    auto branch = harness.store().Checkout(writers[i].get(), {});
    ASSERT_TRUE(branch.ok()) << branch.status();
    EXPECT_EQ((*branch)->base_tokens(), static_cast<int64_t>(want.size()));
    (*branch)->Append(SomeTokens(3, i));
    want = Concat(want, SomeTokens(3, i));
    const int64_t tokens = (*branch)->tokens();
    ASSERT_TRUE(
        harness.store().Commit(writers[i].get(), *std::move(branch), {.tokens = tokens}).ok());
    writers[i].reset();
  }
  EXPECT_EQ(harness.Read("a"), want);
  EXPECT_EQ(harness.store().GetSession("p", "a")->active_turns, 0);
}

TEST(WritersTest, AbortIsForThoseWhoFindAnother) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  auto first = harness.Admit("a", OnConflict::kAbort);
  ASSERT_NE(first, nullptr);
  const absl::Status busy =
      harness.store()
          .Admit({.principal = "p", .session_id = "a", .on_conflict = OnConflict::kAbort})
          .status();
  EXPECT_EQ(busy.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(GetErrorReason(busy), ErrorReason::kSessionBusy);
  first.reset();
  EXPECT_NE(harness.Admit("a", OnConflict::kAbort), nullptr);
}

TEST(WritersTest, AForkRunsBesideTheFirstAndBecomesASession) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(9)).ok());
  auto first = harness.Admit("a");
  auto first_branch = *harness.store().Checkout(first.get(), {});
  first_branch->Append(SomeTokens(2, 2));
  auto fork = harness.Admit("a", OnConflict::kFork);
  ASSERT_TRUE(fork->ready());
  const std::string id = fork->fork_id();
  ASSERT_FALSE(id.empty());
  // Reserved: no one sees it, and no one else gets it.
  EXPECT_FALSE(harness.store().GetSession("p", id).ok());
  EXPECT_THAT(harness.store().ListSessions("p", "", 10), SizeIs(1));
  EXPECT_EQ(GetErrorReason(harness.Create(id)), ErrorReason::kSessionExists);
  EXPECT_EQ(harness.store().GetSession("p", "a")->active_turns, 1);

  auto branch = *harness.store().Checkout(fork.get(), {});
  branch->Append(SomeTokens(3, 3));
  branch->MatchPrefix();
  ASSERT_TRUE(harness.Compute(branch.get()).ok());
  auto version = harness.store().Commit(fork.get(), std::move(branch), {.tokens = 12});
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(version->session_id, id);
  EXPECT_EQ(version->number, Version{1});
  EXPECT_EQ(version->parent, Version::kNone);
  fork.reset();
  EXPECT_EQ(harness.store().GetSession("p", id)->forked_from, "sessions/a/versions/1");
  EXPECT_EQ(harness.Read(id), Concat(SomeTokens(9), SomeTokens(3, 3)));

  ASSERT_TRUE(harness.store().Commit(first.get(), std::move(first_branch), {.tokens = 11}).ok());
  EXPECT_EQ(harness.Read("a"), Concat(SomeTokens(9), SomeTokens(2, 2)));
  harness.Audit();
}

TEST(WritersTest, AForkThatIsDroppedLeavesNoSession) {
  StoreOptions options = SmallOptions();
  options.max_sessions = 2;
  KvHarness harness(options);
  ASSERT_TRUE(harness.Create("a").ok());
  auto first = harness.Admit("a", OnConflict::kFork);
  EXPECT_THAT(first->fork_id(), IsEmpty()) << "alone, it writes to the session";
  auto fork = harness.Admit("a", OnConflict::kFork);
  EXPECT_EQ(GetErrorReason(harness.Create("b")), ErrorReason::kSessionLimit)
      << "its place is reserved";
  fork.reset();
  EXPECT_TRUE(harness.Create("b").ok());
  EXPECT_EQ(harness.store()
                .Admit({.principal = "p", .session_id = "a", .on_conflict = OnConflict::kFork})
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(WritersTest, AForkOutlivesItsSourceOnceItStarted) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(9)).ok());
  auto first = harness.Admit("a");
  auto started = harness.Admit("a", OnConflict::kFork);
  auto waiting = harness.Admit("a", OnConflict::kFork);
  auto branch = *harness.store().Checkout(started.get(), {});
  branch->Append({1, 2});
  ASSERT_TRUE(harness.store().DeleteSession("p", "a", {}, false).ok());
  EXPECT_TRUE(started->status().ok());
  EXPECT_EQ(GetErrorReason(waiting->status()), ErrorReason::kSessionDeleted);
  ASSERT_TRUE(harness.store().Commit(started.get(), std::move(branch), {.tokens = 11}).ok());
  EXPECT_EQ(harness.Read(started->fork_id()), Concat(SomeTokens(9), {1, 2}));
  harness.Audit();
}

TEST(WritersTest, ASessionStaysAsLongAsAForkWaits) {
  KvHarness harness;
  WriteIntent intent = {.principal = "p", .session_id = "a", .allow_missing = true};
  intent.spec_if_missing = SessionSpec{.idle_ttl = absl::Seconds(10)};
  auto maker = *harness.store().Admit(intent);
  auto fork = harness.Admit("a", OnConflict::kFork);
  maker.reset();
  EXPECT_TRUE(fork->status().ok()) << fork->status();
  auto branch = *harness.store().Checkout(fork.get(), {});
  branch->Append({1, 2});
  ASSERT_TRUE(harness.store().Commit(fork.get(), std::move(branch), {.tokens = 2}).ok());
  const std::string id = fork->fork_id();
  fork.reset();
  EXPECT_FALSE(harness.store().GetSession("p", "a").ok()) << "it has no version";
  EXPECT_EQ(harness.Read(id), Tokens({1, 2}));

  auto first = harness.Admit(id);
  fork = harness.Admit(id, OnConflict::kFork);
  first.reset();
  harness.clock().Advance(absl::Seconds(11));
  harness.store().Maintain();
  EXPECT_TRUE(fork->status().ok()) << fork->status();
  fork.reset();
  harness.ExpectExpiry(id, absl::Seconds(10));
  harness.Audit();
}

TEST(WritersTest, ExpectedVersionIsCheckedWhenTheTurnStarts) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  auto first = harness.Admit("a", OnConflict::kQueue, 0);
  auto second = harness.Admit("a", OnConflict::kQueue, 0);
  auto third = harness.Admit("a", OnConflict::kQueue, 1);
  auto branch = *harness.store().Checkout(first.get(), {});
  branch->Append({1, 2, 3});
  ASSERT_TRUE(harness.store().Commit(first.get(), std::move(branch), {.tokens = 3}).ok());
  first.reset();
  EXPECT_EQ(GetErrorReason(harness.store().Checkout(second.get(), {}).status()),
            ErrorReason::kVersionMismatch);
  second.reset();
  EXPECT_TRUE(harness.store().Checkout(third.get(), {}).ok());
}

TEST(WritersTest, ASessionMadeByATurnLivesIfTheTurnCommits) {
  KvHarness harness;
  WriteIntent intent = {.principal = "p", .session_id = "a"};
  EXPECT_EQ(GetErrorReason(harness.store().Admit(intent).status()), ErrorReason::kNoSuchResource);
  intent.allow_missing = true;
  intent.spec_if_missing = SessionSpec{.retention = {RetentionPolicy::Kind::kSlidingWindow, 2, 8}};
  auto writer = *harness.store().Admit(intent);
  auto second = *harness.store().Admit(intent);
  EXPECT_EQ(harness.store().GetSession("p", "a")->active_turns, 2);
  writer.reset();
  EXPECT_TRUE(harness.store().GetSession("p", "a").ok()) << "another waits for it";
  second.reset();
  EXPECT_FALSE(harness.store().GetSession("p", "a").ok());

  writer = *harness.store().Admit(intent);
  auto branch = *harness.store().Checkout(writer.get(), {});
  EXPECT_EQ(branch->retention().window_tokens, 8);
  branch->Append({1});
  ASSERT_TRUE(harness.store().Commit(writer.get(), std::move(branch), {.tokens = 1}).ok());
  writer.reset();
  EXPECT_EQ(harness.store().GetSession("p", "a")->spec.retention.window_tokens, 8);
}

TEST(WritersTest, AnEditOutsideTheSessionIsRefused) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(9)).ok());
  auto writer = harness.Admit("a");
  for (int64_t position : {-1, 10}) {
    const absl::Status status = harness.store().Checkout(writer.get(), position).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(GetErrorReason(status), ErrorReason::kBadPosition);
  }
  EXPECT_EQ((*harness.store().Checkout(writer.get(), 9))->base_tokens(), 9);
  EXPECT_EQ((*harness.store().Checkout(writer.get(), 0))->base_tokens(), 0);
}

}  // namespace
}  // namespace tokend::kv
