// Turns: admission, steps, commit and drop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "tests/core/kv/random_program.h"

namespace tokend::kv {
namespace {

using base::ErrorReason;
using base::GetErrorReason;

}  // namespace

void Program::Admit() {
  if (turns_.size() >= 6) return;
  WriteIntent intent;
  const Name name = AnyName();
  intent.principal = name.first;
  intent.session_id = name.second;
  intent.allow_missing = Chance(30);
  intent.on_conflict = static_cast<WriteIntent::OnConflict>(Below(3));
  ModelSession* session = FindModel(name);
  if (Chance(10)) intent.expected_version = Below(4);
  const bool behind = session != nullptr && Active(name, session->uid) > 0;
  auto writer = store().Admit(intent);
  if (session == nullptr && !intent.allow_missing) {
    EXPECT_EQ(GetErrorReason(writer.status()), ErrorReason::kNoSuchResource);
    return;
  }
  if (behind && intent.on_conflict == WriteIntent::OnConflict::kAbort) {
    EXPECT_EQ(GetErrorReason(writer.status()), ErrorReason::kSessionBusy);
    return;
  }
  ASSERT_TRUE(writer.ok()) << writer.status();
  const bool fork = behind && intent.on_conflict == WriteIntent::OnConflict::kFork;
  EXPECT_EQ((*writer)->fork_id().empty(), !fork);
  if (session == nullptr) {
    auto info = store().GetSession(name.first, name.second);
    ASSERT_TRUE(info.ok());
    session = &(sessions_[name] = {.uid = info->uid, .provisional = true});
  }
  turns_.push_back({.name = name, .uid = session->uid, .writer = *std::move(writer)});
  Checkout(&turns_.back());
}

void Program::Checkout() {
  if (!turns_.empty()) Checkout(&turns_[Below(static_cast<int>(turns_.size()))]);
}

void Program::Checkout(OpenTurn* turn) {
  if (turn->branch != nullptr || turn->writer == nullptr || !turn->writer->ready()) return;
  ModelSession* session = FindModel(turn->name);
  const bool gone = session == nullptr || session->uid != turn->uid;
  std::optional<int64_t> from;
  if (Chance(15)) from = Below(40);
  auto branch = store().Checkout(turn->writer.get(), from);
  if (gone) {
    EXPECT_EQ(GetErrorReason(branch.status()), ErrorReason::kSessionDeleted);
    return;
  }
  const std::optional<int64_t> expected = turn->writer->intent().expected_version;
  if (expected && *expected != session->head) {
    EXPECT_EQ(GetErrorReason(branch.status()), ErrorReason::kVersionMismatch);
    return;
  }
  turn->tokens = session->tokens();
  if (from && *from > static_cast<int64_t>(turn->tokens.size())) {
    EXPECT_EQ(GetErrorReason(branch.status()), ErrorReason::kBadPosition);
    return;
  }
  ASSERT_TRUE(branch.ok()) << branch.status();
  if (from) turn->tokens.resize(*from);
  turn->base = session->head;
  turn->policy = session->policy;
  turn->branch = *std::move(branch);
  Begin(turn);
}

void Program::Ephemeral() {
  if (turns_.size() >= 6) return;
  OpenTurn turn;
  turn.branch = store().CheckoutEphemeral(Chance(70) ? "p" : "q");
  turns_.push_back(std::move(turn));
  Begin(&turns_.back());
}

void Program::Begin(OpenTurn* turn) {
  const Tokens input = turn->tokens.size() > 70 ? Tokens() : Input();
  turn->branch->Append(input);
  turn->tokens = Concat(turn->tokens, input);
  turn->matched = Chance(90);
  if (turn->matched) turn->branch->MatchPrefix();
  EXPECT_EQ(turn->branch->tokens(), static_cast<int64_t>(turn->tokens.size()));
  EXPECT_LE(turn->branch->computed(), std::max<int64_t>(0, turn->branch->tokens() - 1));
}

void Program::StepSome() {
  std::vector<OpenTurn*> chosen;
  std::vector<ops::StepSequence> sequences;
  Tokens rows;
  std::vector<int32_t> last_rows;
  if (Chance(2)) harness_.backend().fail_copy_in = 1;
  for (size_t i = 0; i < turns_.size(); ++i) {
    OpenTurn* turn = &turns_[i];
    if (turn->branch == nullptr || Chance(40)) continue;
    const int64_t left = turn->branch->tokens() - turn->branch->computed();
    if (left == 0) {
      const Tokens drawn = SomeTokens(1, Below(3));
      turn->branch->Append(drawn);
      turn->tokens = Concat(turn->tokens, drawn);
      continue;
    }
    int64_t count = Chance(30) ? 1 : 1 + Below(static_cast<int>(left));
    if (!Prepare(turn, count)) {
      OpenTurn dropped = std::move(*turn);
      turns_.erase(turns_.begin() + static_cast<int64_t>(i));
      Leave(&dropped);
      return;
    }
    const int64_t at = turn->branch->computed();
    count = std::min(count, turn->branch->step_rows());
    sequences.push_back({.first_row = static_cast<int32_t>(rows.size()),
                         .rows = static_cast<int32_t>(count),
                         .position = at,
                         .layers = turn->branch->layers()});
    turn->branch->ReadTokens(at, at + count, &rows);
    if (at + count > turn->branch->layers().back().attend_begin) {
      last_rows.push_back(static_cast<int32_t>(rows.size()) - 1);
    }
    chosen.push_back(turn);
  }
  harness_.backend().fail_copy_in = 0;
  if (chosen.empty()) return;
  auto output =
      harness_.backend().Forward({.tokens = rows, .sequences = sequences, .logit_rows = last_rows});
  ASSERT_TRUE(output.ok()) << output.status();
  size_t next = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    OpenTurn* turn = chosen[i];
    const int64_t end = sequences[i].position + sequences[i].rows;
    if (end > sequences[i].layers.back().attend_begin) {
      const std::vector<float> want =
          harness_.Reference(turn->policy, turn->tokens).Logits(end - 1);
      EXPECT_EQ(output->logits.subspan(next++ * kVocabulary, kVocabulary),
                absl::MakeConstSpan(want));
    }
    turn->branch->Advance(sequences[i].rows);
    EXPECT_GE(turn->branch->computed(), end);
  }
}

bool Program::Prepare(OpenTurn* turn, int64_t count) {
  const int64_t needed = turn->branch->PagesNeeded(turn->branch->computed() + count, count);
  const int64_t obtainable = store().ObtainablePages();
  const bool matched = std::exchange(turn->matched, true);
  const absl::Status status = turn->branch->Prepare(count);
  if (status.ok()) return true;
  if (GetErrorReason(status) == ErrorReason::kBackendFailed) return false;
  EXPECT_EQ(GetErrorReason(status), ErrorReason::kKvPoolFull) << status;
  EXPECT_TRUE(!matched || needed > obtainable)
      << "refused " << needed << " pages of " << obtainable << " obtainable";
  ++refused_;
  return false;
}

void Program::Park() {
  if (turns_.empty()) return;
  OpenTurn& turn = turns_[Below(static_cast<int>(turns_.size()))];
  if (turn.branch == nullptr) return;
  turn.branch->Park();
  EXPECT_TRUE(turn.branch->parked());
  EXPECT_EQ(turn.branch->computed(), 0);
  EXPECT_EQ(turn.branch->tokens(), static_cast<int64_t>(turn.tokens.size()));
  turn.matched = false;
  ++parked_;
}

void Program::EndTurn() {
  if (turns_.empty()) return;
  const int i = Below(static_cast<int>(turns_.size()));
  OpenTurn turn = std::move(turns_[i]);
  turns_.erase(turns_.begin() + i);
  if (turn.writer == nullptr) return;
  const std::string fork_id = turn.writer->fork_id();
  if (turn.branch != nullptr && Chance(75)) Commit(&turn, fork_id);
  Leave(&turn);
}

void Program::Leave(OpenTurn* turn) {
  turn->branch.reset();
  if (turn->writer == nullptr) return;
  const bool forked = !turn->writer->fork_id().empty();
  turn->writer.reset();
  ModelSession* session = FindModel(turn->name);
  if (session != nullptr && session->provisional && session->uid == turn->uid &&
      Active(turn->name, turn->uid) == 0 && !forked) {
    sessions_.erase(turn->name);
  }
}

void Program::Commit(OpenTurn* turn, const std::string& fork_id) {
  if (Chance(30)) turn->tokens.resize(Below(static_cast<int>(turn->tokens.size()) + 1));
  ModelSession* session = FindModel(turn->name);
  const bool gone = session == nullptr || session->uid != turn->uid;
  auto version =
      store().Commit(turn->writer.get(), std::move(turn->branch),
                     {.tokens = static_cast<int64_t>(turn->tokens.size()), .request_id = "r"});
  if (!fork_id.empty()) {
    ASSERT_TRUE(version.ok()) << version.status();
    EXPECT_EQ(version->session_id, fork_id);
    const Name name = {turn->name.first, fork_id};
    auto info = store().GetSession(name.first, name.second);
    ASSERT_TRUE(info.ok());
    sessions_[name] = {.policy = turn->policy, .uid = info->uid};
    sessions_[name].Add(turn->tokens, 0, MaxVersions());
    return;
  }
  if (gone) {
    EXPECT_EQ(GetErrorReason(version.status()), ErrorReason::kSessionDeleted);
    return;
  }
  ASSERT_TRUE(version.ok()) << version.status();
  session->Add(turn->tokens, turn->base, MaxVersions());
  session->provisional = false;
  EXPECT_EQ(static_cast<int64_t>(version->number), session->head);
}

}  // namespace tokend::kv
