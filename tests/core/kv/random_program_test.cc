// Random programs against a store that keeps plain token vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
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
using base::GetErrorReason;

struct ModelVersion {
  Tokens tokens;
  int64_t parent = 0;
};

struct ModelSession {
  RetentionPolicy policy;
  std::map<int64_t, ModelVersion> versions;  // retained
  int64_t head = 0;
  int64_t next = 1;
  std::string uid;
  bool provisional = false;

  Tokens tokens() const { return head == 0 ? Tokens() : versions.at(head).tokens; }
  void Add(Tokens tokens, int64_t parent, int max_versions) {
    head = next++;
    versions[head] = {std::move(tokens), parent};
    if (static_cast<int>(versions.size()) > max_versions) versions.erase(versions.begin());
  }
};

using Name = std::pair<std::string, std::string>;  // principal, id

struct OpenTurn {
  Name name;
  std::string uid;  // of the session when the turn was admitted
  std::unique_ptr<Writer> writer;
  std::unique_ptr<Branch> branch;
  Tokens tokens;
  int64_t base = 0;
  RetentionPolicy policy;
  bool matched = false;
};

class Program {
 public:
  Program(uint32_t seed, const StoreOptions& options) : random_(seed), harness_(options) {}

  void Run(int operations, bool scarce) {
    for (step_ = 0; step_ < operations && !::testing::Test::HasFailure(); ++step_) {
      SCOPED_TRACE(absl::StrCat("operation ", step_));
      Operation();
      harness_.Audit();
      CheckModel();
    }
    CheckCoverage(scarce);
    turns_.clear();
    for (const auto& [name, session] : sessions_) {
      EXPECT_TRUE(store().DeleteSession(name.first, name.second, {}, true).ok());
    }
    store().Maintain();
    harness_.Audit();
    const PageCounts pages = store().Snapshot().pages;
    EXPECT_EQ(pages.free + pages.cached, pages.total) << "pages are lost";
  }

 private:
  // A program that never gets there proves little. The seeds below do.
  void CheckCoverage(bool scarce) {
    if (std::getenv("TOKEND_TEST_SEED") != nullptr) return;
    const CountingObserver& seen = harness_.observer();
    EXPECT_GT(seen.hits, 50);
    EXPECT_GT(seen.copies, 50);
    EXPECT_GT(seen.evicted.at(base::EvictionCause::kWindow), 0);
    if (scarce) {
      EXPECT_GT(seen.evicted.at(base::EvictionCause::kPressure), 100);
      EXPECT_GT(seen.evicted.at(base::EvictionCause::kIdle), 5);
      EXPECT_GT(seen.recomputed, 10);
      EXPECT_GT(refused_, 2);
    }
  }

  SessionStore& store() { return harness_.store(); }
  int Below(int n) { return static_cast<int>(random_() % n); }
  bool Chance(int percent) { return Below(100) < percent; }
  int MaxVersions() const { return harness_.options().max_versions; }

  // Few distinct pieces, so that prefixes meet.
  Tokens Input() {
    Tokens input;
    for (int pieces = Below(4); pieces >= 0; --pieces) {
      input = Concat(input, SomeTokens(1 + Below(9), Below(3)));
    }
    return input;
  }

  RetentionPolicy Policy() {
    RetentionPolicy policy;
    switch (Below(4)) {
      case 0:
        policy = {RetentionPolicy::Kind::kSlidingWindow, Below(3) * 3, 1 + Below(12)};
        break;
      case 1:
        policy = {RetentionPolicy::Kind::kLayered, Below(2) * 5, 1 + Below(9), 1 + Below(2)};
        break;
      default:
        break;
    }
    return policy;
  }

  Name AnyName() { return {Chance(70) ? "p" : "q", absl::StrCat("s", Below(5))}; }
  ModelSession* FindModel(const Name& name) {
    const auto found = sessions_.find(name);
    return found == sessions_.end() ? nullptr : &found->second;
  }
  int Active(const Name& name, const std::string& uid) {
    return static_cast<int>(std::count_if(turns_.begin(), turns_.end(), [&](const OpenTurn& turn) {
      return turn.name == name && turn.uid == uid && turn.writer && turn.writer->fork_id().empty();
    }));
  }

  void Operation() {
    const int kind = Below(100);
    if (kind < 8) {
      CreateSession();
    } else if (kind < 25) {
      Admit();
    } else if (kind < 32) {
      Checkout();
    } else if (kind < 36) {
      Ephemeral();
    } else if (kind < 66) {
      StepSome();
    } else if (kind < 76) {
      EndTurn();
    } else if (kind < 81) {
      Fork();
    } else if (kind < 86) {
      Rollback();
    } else if (kind < 89) {
      Delete();
    } else if (kind < 93) {
      ReadSome();
    } else {
      store().Maintain();
    }
  }

  void CreateSession() {
    const Name name = AnyName();
    SessionSpec spec = {.retention = Policy(), .pinned = Chance(5)};
    auto info = store().CreateSession(name.first, name.second, spec);
    if (FindModel(name) != nullptr) {
      EXPECT_EQ(GetErrorReason(info.status()), ErrorReason::kSessionExists);
      return;
    }
    ASSERT_TRUE(info.ok()) << info.status();
    sessions_[name] = {.policy = spec.retention, .uid = info->uid};
  }

  void Admit() {
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

  void Checkout() {
    if (!turns_.empty()) Checkout(&turns_[Below(static_cast<int>(turns_.size()))]);
  }

  void Checkout(OpenTurn* turn) {
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

  void Ephemeral() {
    if (turns_.size() >= 6) return;
    OpenTurn turn;
    turn.branch = store().CheckoutEphemeral(Chance(70) ? "p" : "q");
    turns_.push_back(std::move(turn));
    Begin(&turns_.back());
  }

  void Begin(OpenTurn* turn) {
    const Tokens input = turn->tokens.size() > 70 ? Tokens() : Input();
    turn->branch->Append(input);
    turn->tokens = Concat(turn->tokens, input);
    turn->matched = Chance(90);
    if (turn->matched) turn->branch->MatchPrefix();
    EXPECT_EQ(turn->branch->tokens(), static_cast<int64_t>(turn->tokens.size()));
    EXPECT_LE(turn->branch->computed(), std::max<int64_t>(0, turn->branch->tokens() - 1));
  }

  // One step over some of the open turns.
  void StepSome() {
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
      const int64_t count = Chance(30) ? 1 : 1 + Below(static_cast<int>(left));
      if (!Prepare(turn, count)) {
        OpenTurn dropped = std::move(*turn);
        turns_.erase(turns_.begin() + static_cast<int64_t>(i));
        Leave(&dropped);
        return;
      }
      const int64_t at = turn->branch->computed();
      if (at + count > turn->branch->tokens()) continue;
      EXPECT_EQ(turn->branch->computed(), at);
      sequences.push_back({.first_row = static_cast<int32_t>(rows.size()),
                           .rows = static_cast<int32_t>(count),
                           .position = at,
                           .layers = turn->branch->layers()});
      turn->branch->ReadTokens(at, at + count, &rows);
      last_rows.push_back(static_cast<int32_t>(rows.size()) - 1);
      chosen.push_back(turn);
    }
    harness_.backend().fail_copy_in = 0;
    if (chosen.empty()) return;
    auto output = harness_.backend().Forward(
        {.tokens = rows, .sequences = sequences, .logit_rows = last_rows});
    ASSERT_TRUE(output.ok()) << output.status();
    for (size_t i = 0; i < chosen.size(); ++i) {
      OpenTurn* turn = chosen[i];
      const int64_t end = sequences[i].position + sequences[i].rows;
      const std::vector<float> want =
          harness_.Reference(turn->policy, turn->tokens).Logits(end - 1);
      EXPECT_EQ(output->logits.subspan(i * kVocabulary, kVocabulary), absl::MakeConstSpan(want));
      turn->branch->Advance(sequences[i].rows);
      EXPECT_EQ(turn->branch->computed(), end);
    }
  }

  // False: no room, or the copy failed; then the turn is to be dropped.
  bool Prepare(OpenTurn* turn, int64_t count) {
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

  void EndTurn() {
    if (turns_.empty()) return;
    const int i = Below(static_cast<int>(turns_.size()));
    OpenTurn turn = std::move(turns_[i]);
    turns_.erase(turns_.begin() + i);
    if (turn.writer == nullptr) return;
    const std::string fork_id = turn.writer->fork_id();
    if (turn.branch != nullptr && Chance(75)) Commit(&turn, fork_id);
    Leave(&turn);
  }

  // A session that a turn made is gone with its last turn, unless one committed.
  void Leave(OpenTurn* turn) {
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

  void Commit(OpenTurn* turn, const std::string& fork_id) {
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

  void Fork() {
    const Name name = AnyName();
    const std::string id = absl::StrCat("s", Below(5));
    ModelSession* session = FindModel(name);
    std::optional<int64_t> version, end;
    if (Chance(50)) version = 1 + Below(6);
    if (Chance(30)) end = Below(30);
    auto info = store().Fork(name.first, name.second, version, id, end);
    if (session == nullptr) {
      EXPECT_EQ(GetErrorReason(info.status()), ErrorReason::kNoSuchResource);
      return;
    }
    const int64_t number = version.value_or(session->head);
    if (number != 0 && session->versions.count(number) == 0) {
      EXPECT_EQ(info.status().code(), absl::StatusCode::kNotFound);
      return;
    }
    Tokens tokens = number == 0 ? Tokens() : session->versions[number].tokens;
    if (end && *end > static_cast<int64_t>(tokens.size())) {
      EXPECT_EQ(GetErrorReason(info.status()), ErrorReason::kBadPosition);
      return;
    }
    if (FindModel({name.first, id}) != nullptr) {
      EXPECT_EQ(GetErrorReason(info.status()), ErrorReason::kSessionExists);
      return;
    }
    ASSERT_TRUE(info.ok()) << info.status();
    if (end) tokens.resize(*end);
    ModelSession fork = {.policy = session->policy, .uid = info->uid};
    fork.Add(std::move(tokens), 0, MaxVersions());
    sessions_[{name.first, id}] = std::move(fork);
  }

  void Rollback() {
    const Name name = AnyName();
    ModelSession* session = FindModel(name);
    const int64_t version = 1 + Below(8);
    auto info = store().Rollback(name.first, name.second, version, {});
    if (session == nullptr || session->versions.count(version) == 0) {
      EXPECT_EQ(info.status().code(), absl::StatusCode::kNotFound);
    } else if (Active(name, session->uid) > 0) {
      EXPECT_EQ(GetErrorReason(info.status()), ErrorReason::kSessionBusy);
    } else {
      ASSERT_TRUE(info.ok()) << info.status();
      session->Add(session->versions[version].tokens, version, MaxVersions());
    }
  }

  void Delete() {
    Name name = AnyName();
    if (Chance(50) && !sessions_.empty()) name = sessions_.begin()->first;
    const absl::Status status = store().DeleteSession(name.first, name.second, {}, false);
    EXPECT_EQ(status.ok(), sessions_.erase(name) > 0);
  }

  void ReadSome() {
    for (const auto& [name, session] : sessions_) {
      for (const auto& [number, version] : session.versions) {
        const int64_t size = static_cast<int64_t>(version.tokens.size());
        const int64_t start = Below(static_cast<int>(size) + 1);
        const int limit = 1 + Below(20);
        auto slice = store().ReadTokens(name.first, name.second, number, start, limit);
        ASSERT_TRUE(slice.ok()) << slice.status();
        const Tokens want(version.tokens.begin() + start,
                          version.tokens.begin() + std::min(size, start + limit));
        EXPECT_EQ(slice->tokens, want);
        EXPECT_EQ(slice->total_tokens, size);
      }
    }
  }

  void CheckModel() {
    for (const auto& [name, session] : sessions_) {
      auto info = store().GetSession(name.first, name.second);
      ASSERT_TRUE(info.ok()) << name.second << ": " << info.status();
      EXPECT_EQ(info->uid, session.uid);
      EXPECT_EQ(static_cast<int64_t>(info->head), session.head);
      EXPECT_EQ(info->tokens, static_cast<int64_t>(session.tokens().size()));
      EXPECT_LE(info->resident_tokens, info->tokens);
      EXPECT_EQ(info->active_turns, Active(name, session.uid));
      auto versions = store().ListVersions(name.first, name.second, {}, 100);
      ASSERT_TRUE(versions.ok());
      ASSERT_EQ(versions->size(), session.versions.size());
      size_t i = versions->size();
      for (const auto& [number, version] : session.versions) {
        const VersionInfo& got = (*versions)[--i];
        EXPECT_EQ(static_cast<int64_t>(got.number), number);
        EXPECT_EQ(static_cast<int64_t>(got.parent), version.parent);
        EXPECT_EQ(got.tokens, static_cast<int64_t>(version.tokens.size()));
      }
    }
    EXPECT_EQ(store().Snapshot().sessions, static_cast<int64_t>(sessions_.size()));
  }

  std::mt19937 random_;
  KvHarness harness_;
  std::map<Name, ModelSession> sessions_;
  std::vector<OpenTurn> turns_;
  int step_ = 0;
  int refused_ = 0;
};

class RandomProgramTest : public ::testing::TestWithParam<int> {};

StoreOptions ProgramOptions(int pages, int digest_bits) {
  StoreOptions options = SmallOptions();
  options.pages = pages;
  options.digest_bits = digest_bits;
  options.max_versions = 4;
  return options;
}

uint32_t Seed(int parameter) {
  const char* seed = std::getenv("TOKEND_TEST_SEED");
  return seed != nullptr ? static_cast<uint32_t>(std::atoll(seed)) : parameter;
}

TEST_P(RandomProgramTest, AmpleMemory) {
  SCOPED_TRACE(absl::StrCat("TOKEND_TEST_SEED=", Seed(GetParam())));
  Program(Seed(GetParam()), ProgramOptions(2000, 64)).Run(1500, false);
}

TEST_P(RandomProgramTest, UnderPressure) {
  SCOPED_TRACE(absl::StrCat("TOKEND_TEST_SEED=", Seed(GetParam())));
  Program(Seed(GetParam()), ProgramOptions(84, 64)).Run(1500, true);
}

TEST_P(RandomProgramTest, CollidingDigests) {
  SCOPED_TRACE(absl::StrCat("TOKEND_TEST_SEED=", Seed(GetParam())));
  Program(Seed(GetParam()), ProgramOptions(300, 1)).Run(800, false);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomProgramTest, ::testing::Range(1, 6));

}  // namespace
}  // namespace tokend::kv
