#include "core/kv/session_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

using base::ErrorReason;
using base::GetErrorReason;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(SessionStoreTest, TurnsContinueASession) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  Tokens want;
  for (int turn = 0; turn < 12; ++turn) {
    const Tokens input = SomeTokens(1 + turn, turn);
    auto version = harness.Turn("a", input, 3);
    ASSERT_TRUE(version.ok()) << version.status();
    EXPECT_EQ(static_cast<int64_t>(version->number), turn + 1);
    EXPECT_EQ(static_cast<int64_t>(version->parent), turn);
    EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
    // All but the last token, whose logits are wanted, when only one is new.
    EXPECT_EQ(harness.last_stats().cached_tokens, static_cast<int64_t>(want.size()));
    want = Concat(want, input);
    EXPECT_EQ(harness.Read("a"), want);
    harness.Audit();
  }
}

TEST(SessionStoreTest, ADroppedTurnLeavesNoTrace) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(10)).ok());
  const PageCounts before = harness.store().Snapshot().pages;
  {
    auto writer = harness.Admit("a");
    auto branch = harness.store().Checkout(writer.get(), {});
    ASSERT_TRUE(branch.ok());
    EXPECT_EQ((*branch)->base_version_name(), "sessions/a/versions/1");
    (*branch)->Append(SomeTokens(11, 5));
    (*branch)->MatchPrefix();
    ASSERT_TRUE(harness.Compute(branch->get(), 4).ok());
    harness.Audit();
  }
  EXPECT_EQ(harness.observer().ops[base::SessionOp::kDrop], 1);
  const PageCounts after = harness.store().Snapshot().pages;
  EXPECT_EQ(after.private_pages, before.private_pages);
  EXPECT_EQ(after.shared, before.shared);
  EXPECT_EQ(harness.Read("a"), SomeTokens(10));
  harness.Audit();
  // What the index holds serves the same turn again.
  ASSERT_TRUE(harness.Turn("a", SomeTokens(11, 5)).ok());
  EXPECT_EQ(harness.last_stats().cached_tokens, 20);
  harness.Audit();
}

TEST(SessionStoreTest, ATurnMayCommitLessThanItComputed) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  const Tokens input = SomeTokens(30);
  Tokens want;
  for (int64_t keep : {17, 23, 23, 26, 40}) {
    const int64_t base = static_cast<int64_t>(want.size());
    want = Concat(want, input);
    auto version = harness.Turn("a", input, 7, keep);
    ASSERT_TRUE(version.ok()) << version.status();
    want.resize(keep);
    EXPECT_EQ(harness.Read("a"), want) << base;
    harness.Audit();
  }
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
}

TEST(SessionStoreTest, InputWithoutKvCommits) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(6)).ok());
  {
    auto writer = harness.Admit("a");
    auto branch = *harness.store().Checkout(writer.get(), {});
    branch->Append(SomeTokens(21, 2));
    ASSERT_TRUE(harness.store().Commit(writer.get(), std::move(branch), {.tokens = 27}).ok());
  }
  harness.Audit();
  EXPECT_EQ(harness.Read("a"), Concat(SomeTokens(6), SomeTokens(21, 2)));
  ASSERT_TRUE(harness.Turn("a", SomeTokens(2, 3)).ok());
  EXPECT_LE(harness.last_stats().recomputed_tokens, 6);
  harness.Audit();
}

TEST(SessionStoreTest, VersionsKeepTheirBoundAndTheirNumbers) {
  StoreOptions options = SmallOptions();
  options.max_versions = 3;
  KvHarness harness(options);
  ASSERT_TRUE(harness.Create("a").ok());
  EXPECT_THAT(*harness.store().ListVersions("p", "a", {}, 10), IsEmpty());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(harness.Turn("a", SomeTokens(5, i)).ok());
  auto versions = *harness.store().ListVersions("p", "a", {}, 10);
  ASSERT_THAT(versions, SizeIs(3));
  EXPECT_EQ(versions[0].number, Version{5});
  EXPECT_EQ(versions[2].number, Version{3});
  versions = *harness.store().ListVersions("p", "a", 5, 1);
  ASSERT_THAT(versions, SizeIs(1));
  EXPECT_EQ(versions[0].number, Version{4});

  const absl::Status old = harness.store().ReadTokens("p", "a", 2, {}, 10).status();
  EXPECT_EQ(old.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetErrorReason(old), ErrorReason::kVersionNotRetained);
  EXPECT_EQ(Metadata(old, "oldest_version"), "3");
  const absl::Status future = harness.store().ReadTokens("p", "a", 6, {}, 10).status();
  EXPECT_EQ(GetErrorReason(future), ErrorReason::kNoSuchResource);
  harness.Audit();
}

TEST(SessionStoreTest, RollbackMakesANewVersion) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(harness.Turn("a", SomeTokens(7, i)).ok());
  const absl::Status mismatch = harness.store().Rollback("p", "a", 1, 2).status();
  EXPECT_EQ(mismatch.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(GetErrorReason(mismatch), ErrorReason::kVersionMismatch);
  EXPECT_EQ(Metadata(mismatch, "current_version"), "3");
  EXPECT_EQ(harness.observer().conflicts, 1);

  auto info = harness.store().Rollback("p", "a", 1, 3);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->head, Version{4});
  EXPECT_EQ(info->tokens, 7);
  EXPECT_EQ(harness.store().ListVersions("p", "a", {}, 1)->front().parent, Version{1});
  EXPECT_EQ(harness.Read("a"), SomeTokens(7, 0));
  harness.Audit();
  // Its KV is there, and that of what was rolled back too.
  ASSERT_TRUE(harness.Turn("a", SomeTokens(7, 1)).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
  EXPECT_GE(harness.last_stats().cached_tokens, 12);
  harness.Audit();
  {
    auto writer = harness.Admit("a");
    EXPECT_EQ(GetErrorReason(harness.store().Rollback("p", "a", 1, {}).status()),
              ErrorReason::kSessionBusy);
  }
  EXPECT_TRUE(harness.store().Rollback("p", "a", 1, {}).ok());
}

TEST(SessionStoreTest, ForksShareAndPartWays) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(18, 1)).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(9, 2)).ok());
  const PageCounts before = harness.store().Snapshot().pages;
  auto fork = harness.store().Fork("p", "a", {}, "b", {});
  ASSERT_TRUE(fork.ok()) << fork.status();
  EXPECT_EQ(fork->head, Version{1});
  EXPECT_EQ(fork->forked_from, "sessions/a/versions/2");
  EXPECT_EQ(fork->tokens, 27);
  EXPECT_EQ(fork->resident_tokens, 27);
  const PageCounts after = harness.store().Snapshot().pages;
  EXPECT_EQ(after.free, before.free) << "a fork takes no page";
  EXPECT_EQ(after.private_pages, 0);
  EXPECT_EQ(after.shared, before.private_pages);

  auto cut = harness.store().Fork("p", "a", 1, "c", 10);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->tokens, 10);
  harness.Audit();
  ASSERT_TRUE(harness.Turn("b", SomeTokens(5, 7)).ok());
  ASSERT_TRUE(harness.Turn("c", SomeTokens(5, 8)).ok());
  EXPECT_EQ(harness.last_stats().cached_tokens, 10);
  EXPECT_EQ(harness.Read("a"), Concat(SomeTokens(18, 1), SomeTokens(9, 2)));
  harness.Audit();

  const absl::Status taken = harness.store().Fork("p", "a", {}, "b", {}).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(GetErrorReason(taken), ErrorReason::kSessionExists);
  const absl::Status beyond = harness.store().Fork("p", "a", {}, "d", 28).status();
  EXPECT_EQ(beyond.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(GetErrorReason(beyond), ErrorReason::kBadPosition);
  EXPECT_EQ(Metadata(beyond, "tokens"), "27");
  EXPECT_EQ(Metadata(beyond, "first_position"), "0");
  EXPECT_EQ(harness.store().Snapshot().sessions, 3);
}

TEST(SessionStoreTest, AnEditAtAnyTokenMatchesNothingBehindIt) {
  KvHarness harness;
  const Tokens tokens = SomeTokens(22);
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", tokens).ok());
  for (int at = 0; at <= 22; ++at) {
    ASSERT_TRUE(harness.store().Fork("p", "a", 1, "edit", {}).ok());
    Tokens input = {(at < 22 ? tokens[at] + 1 : 3) % kVocabulary};
    input = Concat(input, Tokens(tokens.begin() + std::min(22, at + 1), tokens.end()));
    ASSERT_TRUE(harness.Turn("edit", input, 64, {}, at).ok());
    EXPECT_LE(harness.last_stats().cached_tokens, at);
    EXPECT_GE(harness.last_stats().cached_tokens, std::min(at, 21)) << "the rows before it match";
    harness.Audit();
    ASSERT_TRUE(harness.store().DeleteSession("p", "edit", {}, false).ok());
    harness.store().Maintain();
  }
}

TEST(SessionStoreTest, AnEditCutsTheConversation) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  const auto text = [](const char* said) { return std::make_shared<const std::string>(said); };
  const auto conversation = std::make_shared<const std::vector<ChatMessage>>(
      std::vector<ChatMessage>{{Role::kUser, text("one"), 0, 4},
                               {Role::kAssistant, text("two"), 4, 9, false},
                               {Role::kUser, text("three"), 9, 12}});
  {
    auto writer = harness.Admit("a");
    auto branch = *harness.store().Checkout(writer.get(), {});
    branch->Append(SomeTokens(12));
    ASSERT_TRUE(
        harness.store()
            .Commit(writer.get(), std::move(branch), {.tokens = 12, .conversation = conversation})
            .ok());
  }
  auto writer = harness.Admit("a");
  EXPECT_EQ((*harness.store().Checkout(writer.get(), {}))->conversation(), conversation);
  const auto cut = (*harness.store().Checkout(writer.get(), 6))->conversation();
  ASSERT_THAT(*cut, SizeIs(2));
  EXPECT_FALSE((*cut)[0].cut);
  EXPECT_TRUE((*cut)[1].cut);
  EXPECT_TRUE((*cut)[1].closed);
  EXPECT_EQ((*cut)[1].end, 6);
  // However long a text is, there is one of it.
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ((*cut)[i].text, (*conversation)[i].text);
  EXPECT_THAT(*(*harness.store().Checkout(writer.get(), 4))->conversation(), SizeIs(1));
}

TEST(SessionStoreTest, DeleteFreesWhatNoOtherOwns) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(20)).ok());
  ASSERT_TRUE(harness.store().Fork("p", "a", {}, "b", 12).ok());
  const absl::Status mismatch = harness.store().DeleteSession("p", "a", 7, false);
  EXPECT_EQ(GetErrorReason(mismatch), ErrorReason::kVersionMismatch);
  ASSERT_TRUE(harness.store().DeleteSession("p", "a", 1, false).ok());
  EXPECT_TRUE(harness.store().DeleteSession("p", "a", {}, true).ok());
  const absl::Status gone = harness.store().DeleteSession("p", "a", {}, false);
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Metadata(gone, "resource_name"), "sessions/a");
  harness.store().Maintain();
  harness.Audit();
  const PageCounts pages = harness.store().Snapshot().pages;
  EXPECT_EQ(pages.private_pages, 3 * 3);
  EXPECT_EQ(pages.free + pages.cached, pages.total - 9);
  EXPECT_EQ(harness.Read("b"), SomeTokens(12));
}

TEST(SessionStoreTest, ARecreatedNameIsAnotherSession) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  const std::string uid = harness.store().GetSession("p", "a")->uid;
  auto writer = harness.Admit("a");
  auto branch = *harness.store().Checkout(writer.get(), {});
  branch->Append(SomeTokens(5));
  auto queued = harness.Admit("a");
  ASSERT_TRUE(harness.store().DeleteSession("p", "a", {}, false).ok());
  ASSERT_TRUE(harness.Create("a").ok());
  EXPECT_NE(harness.store().GetSession("p", "a")->uid, uid);
  EXPECT_EQ(GetErrorReason(writer->status()), ErrorReason::kSessionDeleted);
  EXPECT_EQ(GetErrorReason(queued->status()), ErrorReason::kSessionDeleted);
  EXPECT_TRUE(queued->ready());
  EXPECT_EQ(GetErrorReason(harness.store().Checkout(queued.get(), {}).status()),
            ErrorReason::kSessionDeleted);
  const auto commit = harness.store().Commit(writer.get(), std::move(branch), {.tokens = 5});
  EXPECT_EQ(commit.status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(GetErrorReason(commit.status()), ErrorReason::kSessionDeleted);
  EXPECT_EQ(harness.store().GetSession("p", "a")->head, Version::kNone);
  EXPECT_THAT(harness.Read("a"), IsEmpty());
  harness.Audit();
}

TEST(SessionStoreTest, TwoCommitsOnOneVersionExactlyOneWins) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  for (int i = 0; i < 20; ++i) {
    auto writer = harness.Admit("a");
    auto first = *harness.store().Checkout(writer.get(), {});
    auto second = *harness.store().Checkout(writer.get(), {});
    first->Append(SomeTokens(3, i));
    second->Append(SomeTokens(4, i));
    const int64_t base = first->base_tokens();
    if (i % 2 == 0) std::swap(first, second);
    const int64_t tokens = first->tokens();
    const int64_t other = second->tokens();
    ASSERT_TRUE(harness.store().Commit(writer.get(), std::move(first), {.tokens = tokens}).ok());
    const auto lost = harness.store().Commit(writer.get(), std::move(second), {.tokens = other});
    EXPECT_EQ(GetErrorReason(lost.status()), ErrorReason::kVersionMismatch);
    EXPECT_EQ(Metadata(lost.status(), "current_version"), std::to_string(i + 1));
    EXPECT_EQ(harness.store().GetSession("p", "a")->tokens, base + 3 + (i % 2 == 0 ? 1 : 0));
    harness.Audit();
  }
}

}  // namespace
}  // namespace tokend::kv
