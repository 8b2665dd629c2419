// Two principals whose sessions begin alike and go on with tokens of their own.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/core/engine/harness.h"
#include "tests/support/fake_backend.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT

constexpr int kSessions = 8;  // the first half is one principal's
constexpr int64_t kContext = 160;

std::string Principal(int session) { return session < kSessions / 2 ? "ann" : "bob"; }
std::string SessionName(int session) { return absl::StrCat("s", session % (kSessions / 2)); }
int32_t Canary(int session) { return kFirstByte + 'A' + session; }
std::vector<int32_t> CommonStart() { return ByteTokens("Both begin with this!"); }

kv::RetentionPolicy Policy(int session) {
  if (session % 2 == 0) return {};
  return {kv::RetentionPolicy::Kind::kSlidingWindow, 2, 9};
}

// A model that repeats its last token, so that each turn says its session's alone;
// that it looked at no other's KV shows in the values that logits come from.
class Fuzz {
 public:
  explicit Fuzz(uint64_t seed) : rng_(seed), harness_(Options(seed)) {
    harness_.SetStepTime(absl::Milliseconds(3), absl::Microseconds(50));
    for (int session = 0; session < kSessions; ++session) {
      ops::AttentionMask mask;
      if (Policy(session).kind == kv::RetentionPolicy::Kind::kSlidingWindow) mask = {2, 9};
      references_.emplace_back(kVocabulary, std::vector<ops::AttentionMask>(3, mask));
      references_.back().Append(CommonStart());
      references_.back().Append(std::vector<int32_t>(2 * kContext, Canary(session)));
    }
    harness_.backend().on_forward =
        [this, step = harness_.backend().on_forward](const ops::StepBatch& batch) {
          rows_.clear();
          for (const int32_t row : batch.logit_rows) rows_.push_back(batch.tokens[row]);
          next_row_ = 0;
          return step(batch);
        };
    harness_.backend().on_logits = [this](int64_t position, uint64_t x, absl::Span<float> logits) {
      const int32_t token = rows_.at(next_row_++);
      logits[token] = 100;
      const int session = token - Canary(0);
      ASSERT_TRUE(0 <= session && session < kSessions);
      ASSERT_EQ(x, references_[session].Output(position)) << "session " << session;
      ++checked_;
    };
  }

  void Run(int actions) {
    for (int i = 0; i < actions; ++i) Act();
    for (const Turn& turn : turns_) turn.sink->SetWritable(true);
    harness_.RunUntilIdle();
    for (const Turn& turn : turns_) CheckOutput(turn);
    for (int session = 0; session < kSessions; ++session) CheckSession(session);
    // Each sees its own names alone.
    for (const char* principal : {"ann", "bob"}) {
      for (const auto& info : harness_.store().ListSessions(principal, "", 100)) {
        EXPECT_EQ(info.id.substr(0, 1), "s");
      }
    }
  }

  int64_t parks() { return harness_.scheduler().parks(); }
  int64_t checked() const { return checked_; }
  int64_t checked_pages() { return harness_.tags().checked_pages(); }

 private:
  struct Turn {
    int session = 0;
    std::string id;
    std::shared_ptr<RecordingSink> sink;
  };

  static HarnessOptions Options(uint64_t seed) {
    HarnessOptions options;
    options.engine.context_tokens = kContext;
    options.engine.max_running = 2 + static_cast<int>(seed % 5);
    options.engine.prefill_chunk_tokens = seed % 3 == 0 ? 0 : 1 + static_cast<int>(seed % 11);
    options.backend.page_tokens = 8;
    options.pages = 3 * (20 + static_cast<int64_t>(seed % 4) * 12);
    return options;
  }

  int Below(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }
  const Turn& Any() { return turns_[rng_() % turns_.size()]; }

  void Act() {
    const int session = Below(kSessions);
    switch (Below(14)) {
      case 0:
      case 1:
      case 2:
        Submit(session);
        break;
      case 3:
        if (!turns_.empty()) harness_.scheduler().Cancel(Any().sink.get());
        break;
      case 4: {
        if (turns_.empty()) break;
        const Turn& turn = Any();
        harness_.scheduler().Stop(Principal(turn.session), turn.id, Below(3), [](const auto&) {});
        break;
      }
      case 5:
        if (!turns_.empty()) Any().sink->SetWritable(Below(3) != 0);
        break;
      case 6:
        if (Below(3) == 0) {
          (void)harness_.store().DeleteSession(Principal(session), SessionName(session), {}, true);
        }
        break;
      case 7:
        (void)harness_.store().Rollback(Principal(session), SessionName(session), 1 + Below(4), {});
        break;
      case 8:
        CheckSession(session);
        break;
      default:
        harness_.Step(1 + Below(5));
    }
  }

  void Submit(int session) {
    const int64_t start = static_cast<int64_t>(CommonStart().size());
    const auto info = harness_.store().GetSession(Principal(session), SessionName(session));
    const bool empty = !info.ok() || info->tokens == 0;
    std::vector<int32_t> input = empty ? CommonStart() : std::vector<int32_t>{};
    input.insert(input.end(), static_cast<size_t>(1 + Below(20)), Canary(session));
    Request request = TokensRequest(std::move(input), Below(60));
    request.principal = Principal(session);
    if (Below(5) != 0 || !empty) {
      request.session = OnSession(SessionName(session));
      request.session->spec_if_missing.retention = Policy(session);
      request.session->commit = static_cast<CommitMode>(Below(3));
      // Where the base may be another by then, the turn must not run.
      request.session->expected_version = empty ? 0 : static_cast<int64_t>(info->head);
      if (!empty && (info->tokens > 90 || Below(6) == 0)) request.session->from_position = start;
    } else if (Policy(session).kind != kv::RetentionPolicy::Kind::kFull) {
      return;  // without a session nothing is windowed
    }
    Turn turn = {session, request.id, std::make_shared<RecordingSink>()};
    if (harness_.scheduler().Submit(std::move(request), turn.sink).ok()) turns_.push_back(turn);
  }

  static void CheckOutput(const Turn& turn) {
    ASSERT_TRUE(turn.sink->ended());
    for (const int32_t token : turn.sink->tokens()) ASSERT_EQ(token, Canary(turn.session));
  }

  void CheckSession(int session) {
    const auto slice =
        harness_.store().ReadTokens(Principal(session), SessionName(session), {}, {}, 100000);
    if (!slice.ok() || slice->tokens.empty()) return;
    std::vector<int32_t> want = CommonStart();
    want.resize(slice->tokens.size(), Canary(session));
    ASSERT_EQ(slice->tokens, want) << "session " << session;
  }

  std::mt19937_64 rng_;
  std::vector<FakeReference> references_;  // by session
  std::vector<int32_t> rows_;              // the tokens whose logits a step computes
  size_t next_row_ = 0;
  int64_t checked_ = 0;
  std::vector<Turn> turns_;
  Harness harness_;
};

TEST(IsolationTest, EachTurnSaysItsOwnSessionsTokens) {
  int64_t parks = 0, checked = 0, pages = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Fuzz fuzz(seed);
    fuzz.Run(150);
    parks += fuzz.parks();
    checked += fuzz.checked();
    pages += fuzz.checked_pages();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(parks, 10);
  EXPECT_GT(checked, 10000);
  EXPECT_GT(pages, 10 * checked);
}

// What a step tells by its shape: rows, position and pages of each sequence.
using Shape = std::tuple<int64_t, int64_t, std::vector<int32_t>>;

std::vector<std::vector<Shape>> ShapesOfBobsSteps(bool ann_was_there, bool share) {
  HarnessOptions options;
  options.backend.page_tokens = 8;
  options.engine.prefill_chunk_tokens = 7;
  options.share_prefixes = share;
  Harness harness(options);
  const auto run = [&harness](const std::string& principal) {
    for (int turn = 0; turn < 6; ++turn) {
      std::vector<int32_t> input = turn < 4 ? CommonStart() : std::vector<int32_t>{};
      input.resize(input.size() + 1 + turn, kFirstByte + 'x');
      Request request = TokensRequest(std::move(input), 9);
      request.principal = principal;
      if (turn > 0) {
        request.session = OnSession(absl::StrCat("s", turn % 3));
        if (turn % 3 == 1) {
          request.session->spec_if_missing.retention = {kv::RetentionPolicy::Kind::kSlidingWindow,
                                                        2, 9};
        }
      }
      EXPECT_TRUE(harness.Run(std::move(request))->finished().has_value());
    }
  };
  if (ann_was_there) run("ann");
  std::vector<std::vector<Shape>> steps;
  harness.backend().on_forward = [&steps](const ops::StepBatch& batch) {
    std::vector<Shape> shapes;
    for (const ops::StepSequence& sequence : batch.sequences) {
      std::vector<int32_t> pages;
      for (const ops::LayerKv& layer : sequence.layers) pages.push_back(layer.page_count);
      shapes.emplace_back(sequence.rows, sequence.position, std::move(pages));
    }
    steps.push_back(std::move(shapes));
    return absl::OkStatus();
  };
  const int64_t copies = harness.backend().copied_pages();
  run("bob");
  steps.push_back({{harness.backend().copied_pages() - copies, 0, {}}});
  return steps;
}

TEST(IsolationTest, StepsDoNotTellWhatAnotherHasCached) {
  const auto alone = ShapesOfBobsSteps(false, false);
  EXPECT_GT(alone.size(), 40u);
  EXPECT_EQ(ShapesOfBobsSteps(true, false), alone);
  // Where the operator lets them share, they do.
  EXPECT_NE(ShapesOfBobsSteps(true, true), alone);
}

}  // namespace
}  // namespace tokend::engine
