// The checker itself: histories that can be, and such that cannot.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/kv/errors.h"
#include "tests/core/engine/harness.h"
#include "tests/core/engine/session_model.h"

namespace tokend::testing {
namespace {

using engine::CommitMode;
using engine::OnConflict;

class History {
 public:
  History() { options_.vocabulary_size = kVocabulary; }

  Tokens Reply(const Tokens& tokens, int count) { return TokenPool(options_).Reply(tokens, count); }

  SessionCall& Add(SessionCall call) {
    calls_.push_back(std::move(call));
    return calls_.back();
  }
  SessionCall& Create(int64_t from, int64_t to, const std::string& uid = "u") {
    return Add({.kind = SessionCall::kCreate,
                .session = "a",
                .invoked = from,
                .returned = to,
                .uid = uid});
  }
  // A turn on a session of `base` tokens at version `head`, which becomes the next.
  SessionCall& Turn(int64_t from, int64_t to, int64_t head, const Tokens& base) {
    SessionCall call = {.kind = SessionCall::kTurn,
                        .session = "a",
                        .input = {7, 8},
                        .max_output = 3,
                        .invoked = from,
                        .returned = to};
    Tokens prompt = base;
    prompt.insert(prompt.end(), call.input.begin(), call.input.end());
    call.tokens = Reply(prompt, call.max_output);
    call.started.emplace();
    if (head > 0) call.started->base_version = absl::StrCat("sessions/a/versions/", head);
    call.started->output_position = static_cast<int64_t>(prompt.size());
    call.finished.emplace();
    call.finished->reason = kv::FinishReason::kLength;
    call.finished->version = absl::StrCat("sessions/a/versions/", head + 1);
    return Add(std::move(call));
  }
  SessionCall& Read(int64_t from, int64_t to, int64_t head, const Tokens& tokens) {
    return Add({.kind = SessionCall::kRead,
                .session = "a",
                .invoked = from,
                .returned = to,
                .head = head,
                .tokens = tokens});
  }
  // What the session holds after the turn.
  Tokens After(const Tokens& base, int keep = 3) {
    Tokens tokens = base;
    tokens.insert(tokens.end(), {7, 8});
    const Tokens reply = Reply(tokens, keep);
    tokens.insert(tokens.end(), reply.begin(), reply.end());
    return tokens;
  }

  bool CanBe() const { return CheckLinearizable(options_, calls_).empty(); }

 private:
  SessionModelOptions options_;
  std::vector<SessionCall> calls_;
};

void Cancel(SessionCall* call) {
  call->lost = true;
  call->finished.reset();
  call->tokens.clear();
}

TEST(HistoryTest, TurnsThatOverlapFollowOneAnother) {
  History history;
  history.Create(1, 2);
  const Tokens one = history.After({});
  history.Turn(3, 10, 1, one);
  history.Turn(4, 9, 0, {});
  history.Read(5, 6, 0, {});
  history.Read(7, 8, 2, history.After(one));
  EXPECT_TRUE(history.CanBe());
}

TEST(HistoryTest, ATurnThatWasAnsweredIsSeen) {
  History history;
  history.Create(1, 2);
  history.Turn(3, 4, 0, {});
  history.Read(5, 6, 0, {});
  EXPECT_FALSE(history.CanBe());
}

TEST(HistoryTest, NothingIsSeenBeforeItWasAsked) {
  History history;
  history.Create(1, 2);
  history.Read(3, 4, 1, history.After({}));
  history.Turn(5, 6, 0, {});
  EXPECT_FALSE(history.CanBe());
}

TEST(HistoryTest, NoTwoTurnsMakeOneVersion) {
  History history;
  history.Create(1, 2);
  history.Turn(3, 6, 0, {});
  history.Turn(4, 5, 0, {});
  EXPECT_FALSE(history.CanBe());
}

TEST(HistoryTest, ACancelledTurnMayHaveCommittedLaterOrNever) {
  for (const bool committed : {false, true}) {
    History history;
    history.Create(1, 2);
    Cancel(&history.Turn(3, 4, 0, {}));
    history.Read(5, 6, 0, {});
    if (committed) history.Read(7, 8, 1, history.After({}));
    EXPECT_TRUE(history.CanBe());
    // But not come and gone.
    if (!committed) continue;
    history.Read(9, 10, 0, {});
    EXPECT_FALSE(history.CanBe());
  }
}

TEST(HistoryTest, ACancelledTurnKeepsAllUnlessItAskedForParts) {
  for (const CommitMode commit : {CommitMode::kOnFinish, CommitMode::kPartial}) {
    History history;
    history.Create(1, 2);
    SessionCall& turn = history.Turn(3, 4, 0, {});
    Cancel(&turn);
    turn.commit = commit;
    history.Read(7, 8, 1, history.After({}, 2));
    EXPECT_EQ(history.CanBe(), commit == CommitMode::kPartial);
  }
}

TEST(HistoryTest, AStoppedTurnKeepsWhatWasAskedFor) {
  for (const int keep : {1, 2}) {
    History history;
    history.Create(1, 2);
    SessionCall& turn = history.Turn(3, 4, 0, {});
    turn.finished->reason = kv::FinishReason::kInterrupted;
    turn.keeps = {2};
    history.Read(7, 8, 1, history.After({}, keep));
    EXPECT_EQ(history.CanBe(), keep == 2);
  }
}

TEST(HistoryTest, TheReplyIsThatOfTheWholeSession) {
  History history;
  history.Create(1, 2);
  history.Turn(3, 4, 0, {}).tokens.back() ^= 1;
  EXPECT_FALSE(history.CanBe());
}

TEST(HistoryTest, AnAbortNeedsAConflict) {
  for (const bool other : {false, true}) {
    History history;
    history.Create(1, 2);
    if (other) history.Turn(3, 9, 0, {});
    history.Add({.kind = SessionCall::kTurn,
                 .session = "a",
                 .on_conflict = OnConflict::kAbort,
                 .input = {7},
                 .max_output = 1,
                 .invoked = 4,
                 .returned = 5,
                 .status = kv::SessionBusy("a")});
    EXPECT_EQ(history.CanBe(), other);
  }
}

TEST(HistoryTest, AMismatchNamesTheVersionOfItsTime) {
  for (const int64_t current : {0, 1, 2}) {
    History history;
    history.Create(1, 2);
    history.Turn(3, 9, 0, {});
    history.Add({.kind = SessionCall::kDelete,
                 .session = "a",
                 .expected_version = 5,
                 .invoked = 4,
                 .returned = 5,
                 .status = kv::VersionMismatch(5, kv::Version{current})});
    EXPECT_EQ(history.CanBe(), current < 2) << current;
  }
}

TEST(HistoryTest, AnotherUidTakesADeletion) {
  for (const bool deleted : {false, true}) {
    History history;
    history.Create(1, 2, "one");
    if (deleted) {
      history.Add({.kind = SessionCall::kDelete, .session = "a", .invoked = 3, .returned = 10});
      history.Create(4, 9, "two");
    }
    history.Add(
        {.kind = SessionCall::kGet, .session = "a", .invoked = 5, .returned = 8, .uid = "two"});
    EXPECT_EQ(history.CanBe(), deleted);
  }
}

TEST(HistoryTest, ADeletedSessionsTurnEndsWithIt) {
  for (const bool deleted : {false, true}) {
    History history;
    history.Create(1, 2);
    SessionCall& turn = history.Turn(3, 9, 0, {});
    turn.finished.reset();
    turn.status = kv::SessionDeleted("a");
    if (deleted) {
      history.Add({.kind = SessionCall::kDelete, .session = "a", .invoked = 4, .returned = 5});
    }
    EXPECT_EQ(history.CanBe(), deleted);
  }
}

TEST(HistoryTest, AForkIsNotSeenBeforeItCommits) {
  for (const bool early : {false, true}) {
    History history;
    history.Create(1, 2);
    history.Turn(3, 30, 0, {});
    SessionCall& turn = history.Turn(4, 20, 0, {});
    turn.on_conflict = OnConflict::kFork;
    turn.started->fork_name = "sessions/b";
    turn.finished->version = "sessions/b/versions/1";
    SessionCall read = {.kind = SessionCall::kRead,
                        .session = "b",
                        .invoked = early ? 5 : 21,
                        .returned = early ? 6 : 22,
                        .status = kv::SessionNotFound("b")};
    history.Add(std::move(read));
    EXPECT_EQ(history.CanBe(), early);
  }
}

}  // namespace
}  // namespace tokend::testing
