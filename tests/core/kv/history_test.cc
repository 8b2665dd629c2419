// Sessions that keep their newest tokens alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

using base::ErrorReason;
using base::GetErrorReason;
using ::testing::HasSubstr;

constexpr int64_t kPageTokens = 4;
constexpr int64_t kLayers = 3;

// By StoreOptions::local_windows.
class HistoryTest : public ::testing::TestWithParam<std::vector<int64_t>> {
 protected:
  static constexpr int64_t kSinks = 2, kWindow = 9, kHistory = 50, kLookBack = 5;
  // Of tokens that stay: the history, what an edit at its begin needs, as much
  // again before a session is looked at, and what versions span.
  static constexpr int64_t kMostKept = 3 * (kHistory + kLayers * kWindow + 2 * kPageTokens + 40);

  static StoreOptions Options(int max_versions = 4) {
    StoreOptions options = SmallOptions();
    options.pages = kLayers * 40;
    options.max_versions = max_versions;
    options.look_back_tokens = kLookBack;
    options.local_windows = GetParam();
    return options;
  }
  static SessionSpec Spec(int64_t history = kHistory, int64_t sinks = kSinks,
                          int64_t window = kWindow) {
    return {.retention = {RetentionPolicy::Kind::kSlidingWindow, sinks, window},
            .history_tokens = history};
  }
  // Turns of `size` tokens until the session has `end`; all its tokens.
  static Tokens Stream(KvHarness* harness, const std::string& id, Tokens tokens, int size,
                       int64_t end) {
    while (static_cast<int64_t>(tokens.size()) < end) {
      const Tokens input = SomeTokens(size, static_cast<int>(tokens.size()) + 7);
      EXPECT_TRUE(harness->Turn(id, input).ok());
      EXPECT_EQ(harness->last_stats().recomputed_tokens, 0);
      harness->store().Maintain();
      tokens = Concat(tokens, input);
    }
    return tokens;
  }
  static SessionInfo Info(KvHarness* harness, const std::string& id) {
    return harness->store().GetSession("p", id).value();
  }
  static Tokens From(const Tokens& tokens, int64_t begin) {
    return Tokens(tokens.begin() + begin, tokens.end());
  }
};

TEST_P(HistoryTest, AStreamKeepsItsNewestTokens) {
  for (const int64_t sinks : {0, 2, 5}) {
    for (const int size : {3, 16, 130}) {
      KvHarness harness(Options());
      // A window of one token reaches no page behind a whole one.
      const int64_t window = sinks == 5 ? 1 : kWindow;
      ASSERT_TRUE(harness.store().CreateSession("p", "a", Spec(kHistory, sinks, window)).ok());
      Tokens tokens;
      int64_t touched = 0;
      for (int64_t end = 1000; end <= 3000; end += 1000) {
        const int64_t before = harness.audit().touched();
        tokens = Stream(&harness, "a", std::move(tokens), size, end);
        // The same whatever was before.
        if (touched > 0) {
          EXPECT_LE(harness.audit().touched() - before, touched * 5 / 4);
        }
        touched = harness.audit().touched() - before;
        const SessionInfo info = Info(&harness, "a");
        EXPECT_EQ(info.tokens, static_cast<int64_t>(tokens.size()));
        EXPECT_LE(info.first_position, info.tokens - kHistory);
        EXPECT_GE(info.first_position, info.tokens - kMostKept - 5 * size);
        EXPECT_LE(harness.audit().nodes(), (kMostKept + 5 * size) / kPageTokens + 4);
        EXPECT_EQ(harness.Read("a"), From(tokens, info.first_position));
        for (int64_t back = 1; back < 4; ++back) {
          const int64_t version = static_cast<int64_t>(info.head) - back;
          const TokenSlice older = harness.store().ReadTokens("p", "a", version, {}, 1).value();
          EXPECT_LE(older.start, older.total_tokens - kHistory);
        }
        harness.Audit();
      }
    }
  }
}

TEST_P(HistoryTest, WhatIsShorterKeepsAll) {
  KvHarness harness(Options());
  ASSERT_TRUE(harness.store().CreateSession("p", "a", Spec(1000)).ok());
  const Tokens tokens = Stream(&harness, "a", {}, 9, 1000);
  EXPECT_EQ(Info(&harness, "a").first_position, 0);
  EXPECT_EQ(harness.Read("a"), tokens);
}

TEST_P(HistoryTest, WhatLiesBeforeIsOutOfRange) {
  KvHarness harness(Options());
  SessionStore& store = harness.store();
  ASSERT_TRUE(store.CreateSession("p", "a", Spec()).ok());
  const Tokens tokens = Stream(&harness, "a", {}, 11, 900);
  const int64_t first = Info(&harness, "a").first_position;
  const std::string end = absl::StrCat(tokens.size());
  const auto expect_gone = [&](const absl::Status& status, int64_t position) {
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
    EXPECT_EQ(GetErrorReason(status), ErrorReason::kBadPosition);
    EXPECT_EQ(Metadata(status, "first_position"), absl::StrCat(first));
    EXPECT_EQ(Metadata(status, "tokens"), end);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("position ", position, " is not in")));
    EXPECT_THAT(status.message(), HasSubstr("no longer keeps"));
  };
  for (const int64_t position : {int64_t{0}, int64_t{1}, first - 40, first - 1}) {
    expect_gone(store.Fork("p", "a", {}, "b", position).status(), position);
    expect_gone(store.ReadTokens("p", "a", {}, position, 5).status(), position);
    const auto writer = harness.Admit("a");
    expect_gone(store.Checkout(writer.get(), position).status(), position);
    auto branch = store.Checkout(writer.get(), {}).value();
    expect_gone(store.Commit(writer.get(), std::move(branch), {.tokens = position}).status(),
                position);
  }
  EXPECT_EQ(Info(&harness, "a").tokens, static_cast<int64_t>(tokens.size()));
  // From there on all is as in any session.
  ASSERT_TRUE(harness.Turn("a", SomeTokens(9, 5), 4, {}, first).ok());
  EXPECT_EQ(harness.Read("a"), Concat(Tokens(), SomeTokens(9, 5)));
  EXPECT_EQ(Info(&harness, "a").tokens, first + 9);
  ASSERT_TRUE(store.Fork("p", "a", {}, "b", first).ok());
  EXPECT_EQ(harness.Read("b"), Tokens());
  ASSERT_TRUE(harness.Turn("b", SomeTokens(9, 6), 4).ok());
  harness.Audit();
}

TEST_P(HistoryTest, AfterADropTheReceptiveFieldIsEnough) {
  for (const int64_t sinks : {0, 2, 5}) {
    for (const int64_t window : {1, 2, 9}) {
      for (const int chunk : {1, 5, 64}) {
        KvHarness harness(Options());
        ASSERT_TRUE(harness.store().CreateSession("p", "a", Spec(20, sinks, window)).ok());
        Stream(&harness, "a", {}, 7, 500);
        const int64_t most = kLayers * (window - 1) + 2 * kPageTokens + sinks + 2;
        const int64_t tokens = Info(&harness, "a").tokens;
        const int64_t first = Info(&harness, "a").first_position;
        EXPECT_GT(first, 0);
        for (const int64_t at : {tokens, tokens - 1, first + 5, first + 1, first}) {
          ASSERT_TRUE(harness.TakeAllPages().ok());
          ASSERT_TRUE(harness.Turn("a", SomeTokens(at < first + 5 ? 9 : 0, 3), chunk, {}, at).ok());
          EXPECT_LE(harness.last_stats().recomputed_tokens, most) << at;
          harness.Audit();
        }
      }
    }
  }
}

TEST_P(HistoryTest, EachVersionKeepsItsOwn) {
  KvHarness harness(Options());
  SessionStore& store = harness.store();
  ASSERT_TRUE(store.CreateSession("p", "a", Spec()).ok());
  Stream(&harness, "a", {}, 300, 3000);
  const auto versions = store.ListVersions("p", "a", {}, 10).value();
  ASSERT_EQ(versions.size(), 4u);
  for (const VersionInfo& version : versions) {
    const auto number = static_cast<int64_t>(version.number);
    const TokenSlice slice = store.ReadTokens("p", "a", number, {}, 10000).value();
    EXPECT_GT(slice.start, version.tokens - 300 - kMostKept);
    EXPECT_LE(slice.start, version.tokens - kHistory);
    const Tokens want = SomeTokens(300, static_cast<int>(version.tokens) - 300 + 7);
    EXPECT_EQ(From(slice.tokens, version.tokens - kHistory - slice.start),
              From(want, 300 - kHistory));
  }
  EXPECT_LE(harness.audit().nodes(), 4 * (kMostKept + 300) / kPageTokens);
  for (const VersionInfo& version : versions) {
    const auto number = static_cast<int64_t>(version.number);
    const std::string fork = absl::StrCat("v", number);
    ASSERT_TRUE(store.Fork("p", "a", number, fork, {}).ok());
    ASSERT_TRUE(harness.TakeAllPages().ok());
    ASSERT_TRUE(harness.Turn(fork, SomeTokens(12, 3), 5).ok());
    harness.Audit();
  }
}

TEST_P(HistoryTest, ForksShareUntilTheyNeedNot) {
  KvHarness harness(Options());
  SessionStore& store = harness.store();
  ASSERT_TRUE(store.CreateSession("p", "a", Spec()).ok());
  Tokens tokens = Stream(&harness, "a", {}, 8, 600);
  const int64_t nodes = harness.audit().nodes();
  ASSERT_TRUE(store.Fork("p", "a", {}, "b", {}).ok());
  EXPECT_EQ(harness.audit().nodes(), nodes);
  const SessionInfo before = Info(&harness, "b");
  EXPECT_EQ(before.first_position, Info(&harness, "a").first_position);
  EXPECT_EQ(before.spec.history_tokens, kHistory);
  ASSERT_TRUE(harness.Turn("b", SomeTokens(3, 9)).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);

  // The source moves on; the fork keeps what it had.
  const Tokens forked = Concat(tokens, SomeTokens(3, 9));
  tokens = Stream(&harness, "a", std::move(tokens), 8, 3000);
  EXPECT_GT(Info(&harness, "a").first_position, 2000);
  const int64_t first = Info(&harness, "b").first_position;
  EXPECT_LE(first, 600 - kHistory);
  EXPECT_EQ(harness.Read("b"), From(forked, first));
  harness.Audit();
  ASSERT_TRUE(harness.TakeAllPages().ok());
  ASSERT_TRUE(harness.Turn("b", SomeTokens(9, 4), 5, {}, first).ok());
  harness.Audit();
  ASSERT_TRUE(store.DeleteSession("p", "b", {}, false).ok());
  store.Maintain();
  // TakeAllPages left some in the prefix cache.
  EXPECT_LE(harness.audit().nodes() - store.Snapshot().pages.cached, kMostKept / kPageTokens);
  harness.Audit();
}

TEST_P(HistoryTest, ForksOfEachTurnHoldNothingUp) {
  KvHarness harness(Options());
  SessionStore& store = harness.store();
  ASSERT_TRUE(store.CreateSession("p", "a", Spec()).ok());
  Tokens tokens;
  for (int turn = 0; turn < 400; ++turn) {
    tokens = Stream(&harness, "a", std::move(tokens), 8, 8 * (turn + 1));
    ASSERT_TRUE(store.Fork("p", "a", {}, absl::StrCat("f", turn), {}).ok());
    if (turn < 3) continue;
    ASSERT_TRUE(store.DeleteSession("p", absl::StrCat("f", turn - 3), {}, false).ok());
  }
  EXPECT_LE(harness.audit().nodes(), kMostKept / kPageTokens);
  EXPECT_GE(Info(&harness, "a").first_position, 3200 - kMostKept);
  harness.Audit();
}

TEST_P(HistoryTest, MatchesItsOwnChainAlone) {
  KvHarness harness(Options());
  ASSERT_TRUE(harness.store().CreateSession("p", "a", Spec()).ok());
  ASSERT_TRUE(harness.store().CreateSession("p", "b", Spec()).ok());
  ASSERT_TRUE(harness.store().CreateSession("p", "c", Spec(0)).ok());
  const Tokens input = SomeTokens(60);
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(harness.Turn(id, input).ok());
    EXPECT_EQ(harness.last_stats().cached_tokens, 0) << id;
  }
  ASSERT_TRUE(harness.store().Fork("p", "a", {}, "d", {}).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(20, 3)).ok());
  EXPECT_EQ(harness.observer().hits, 0);
  ASSERT_TRUE(harness.Turn("d", SomeTokens(25, 3)).ok());
  // A fork is of its source's chain.
  EXPECT_EQ(harness.observer().hits, 20);
  harness.Audit();
}

// A turn that runs while the head moves on, and one that is parked.
TEST_P(HistoryTest, WhatABranchNeedsStays) {
  KvHarness harness(Options(1));
  SessionStore& store = harness.store();
  ASSERT_TRUE(store.CreateSession("p", "a", Spec()).ok());
  const Tokens tokens = Stream(&harness, "a", {}, 8, 400);
  const int64_t first = Info(&harness, "a").first_position;
  const auto beside = harness.Admit("a");
  auto branch = store.Checkout(beside.get(), first + 2).value();
  branch->Append(SomeTokens(30, 5));
  branch->MatchPrefix();
  ASSERT_TRUE(harness.Compute(branch.get(), 4, first + 9).ok());
  branch->Park();
  auto fork = harness.Admit("a", WriteIntent::OnConflict::kFork);
  ASSERT_FALSE(fork->fork_id().empty());
  auto other = store.Checkout(fork.get(), {}).value();
  const int64_t end = other->tokens();
  const std::string id = fork->fork_id();
  ASSERT_TRUE(store.Commit(fork.get(), std::move(other), {.tokens = end}).ok());
  Stream(&harness, id, tokens, 8, 2000);
  EXPECT_GT(Info(&harness, id).first_position, 1000);
  EXPECT_EQ(branch->first_position(), first);
  ASSERT_TRUE(harness.TakeAllPages().ok());
  branch->MatchPrefix();
  ASSERT_TRUE(harness.Compute(branch.get(), 5).ok());
  ASSERT_TRUE(store.Commit(beside.get(), std::move(branch), {.tokens = first + 32}).ok());
  const Tokens want =
      Concat(From(Tokens(tokens.begin(), tokens.begin() + first + 2), first), SomeTokens(30, 5));
  EXPECT_EQ(harness.Read("a"), want);
  harness.Audit();
}

// From a base before what another forgets, on pages behind it.
TEST_P(HistoryTest, ABranchThatMatchedFarHasItsWayThere) {
  KvHarness harness(Options(1));
  SessionStore& store = harness.store();
  ASSERT_TRUE(store.CreateSession("p", "a", Spec()).ok());
  const auto writer = harness.Admit("a");
  auto branch = store.Checkout(writer.get(), {}).value();
  auto fork = harness.Admit("a", WriteIntent::OnConflict::kFork);
  auto other = store.Checkout(fork.get(), {}).value();
  const Tokens tokens = SomeTokens(200);
  for (Branch* at : {branch.get(), other.get()}) {
    at->Append(tokens);
    at->MatchPrefix();
    ASSERT_TRUE(harness.Compute(at).ok());
  }
  ASSERT_TRUE(store.Commit(writer.get(), std::move(branch), {.tokens = 200}).ok());
  store.Maintain();
  harness.Audit();
  ASSERT_TRUE(store.Commit(fork.get(), std::move(other), {.tokens = 41}).ok());
  store.Maintain();
  harness.Audit();
  EXPECT_EQ(harness.Read(fork->fork_id()), Tokens(tokens.begin(), tokens.begin() + 41));
}

TEST_P(HistoryTest, MessagesBeforeAreDropped) {
  KvHarness harness(Options());
  SessionStore& store = harness.store();
  ASSERT_TRUE(store.CreateSession("p", "a", Spec()).ok());
  Conversation conversation;
  size_t most = 0;
  for (int turn = 0; turn < 200; ++turn) {
    const auto writer = harness.Admit("a");
    auto branch = store.Checkout(writer.get(), {}).value();
    conversation = branch->conversation();
    auto messages = std::make_shared<std::vector<ChatMessage>>();
    if (conversation != nullptr) *messages = *conversation;
    most = std::max(most, messages->size());
    const int64_t first = branch->first_position();
    if (!messages->empty()) {
      EXPECT_GT(messages->front().end, first);
    }
    messages->push_back({.text = std::make_shared<const std::string>(absl::StrCat(turn)),
                         .begin = branch->tokens(),
                         .end = branch->tokens() + 8});
    branch->Append(SomeTokens(8, turn));
    branch->MatchPrefix();
    ASSERT_TRUE(harness.Compute(branch.get()).ok());
    const int64_t end = branch->tokens();
    ASSERT_TRUE(store
                    .Commit(writer.get(), std::move(branch),
                            {.tokens = end, .conversation = std::move(messages)})
                    .ok());
    store.Maintain();
  }
  EXPECT_GE(most, static_cast<size_t>(kHistory / 8));
  EXPECT_LE(most, static_cast<size_t>(kMostKept / 8));
  EXPECT_EQ(*conversation->back().text, "198");

  // The last stays: it tells that the conversation has begun.
  for (int turn = 0; turn < 100; ++turn) {
    const auto writer = harness.Admit("a");
    auto branch = store.Checkout(writer.get(), {}).value();
    conversation = branch->conversation();
    branch->Append(SomeTokens(8, turn));
    branch->MatchPrefix();
    ASSERT_TRUE(harness.Compute(branch.get()).ok());
    const int64_t end = branch->tokens();
    ASSERT_TRUE(
        store.Commit(writer.get(), std::move(branch), {.tokens = end, .conversation = conversation})
            .ok());
    store.Maintain();
  }
  ASSERT_EQ(conversation->size(), 1u);
  EXPECT_EQ(*conversation->front().text, "199");
}

TEST_P(HistoryTest, IsForSlidingWindowsAlone) {
  KvHarness harness(Options());
  SessionSpec spec = Spec(-1);
  const auto refused = [&] {
    const absl::Status created = harness.store().CreateSession("p", "x", spec).status();
    EXPECT_EQ(GetErrorReason(created), ErrorReason::kInvalidField);
    const absl::Status admitted = harness.store()
                                      .Admit({.principal = "p",
                                              .session_id = "x",
                                              .allow_missing = true,
                                              .spec_if_missing = spec})
                                      .status();
    EXPECT_EQ(GetErrorReason(admitted), ErrorReason::kInvalidField);
  };
  refused();
  spec = {.history_tokens = 5};
  refused();
  spec.retention = {RetentionPolicy::Kind::kLayered, 0, 9, 1};
  refused();
}

INSTANTIATE_TEST_SUITE_P(LocalWindows, HistoryTest,
                         ::testing::Values(std::vector<int64_t>{}, std::vector<int64_t>{5, 0, 5},
                                           std::vector<int64_t>{0, 12, 12}));

}  // namespace
}  // namespace tokend::kv
