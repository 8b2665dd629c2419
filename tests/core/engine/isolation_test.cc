// Two principals whose sessions begin alike and go on with tokens of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/observer.h"
#include "tests/core/engine/harness.h"
#include "tests/core/kv/store_audit.h"
#include "tests/support/fake_backend.h"
#include "tests/support/shadow_tags.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT

constexpr int kSessions = 8;  // the first half is one principal's, of each policy one
constexpr int64_t kContext = 160;
constexpr int kPageTokens = 8;
constexpr int kLayers = 3;

std::string Principal(int session) { return session < kSessions / 2 ? "ann" : "bob"; }
std::string SessionName(int session) { return absl::StrCat("s", session % (kSessions / 2)); }
int32_t Canary(int session) { return kFirstByte + 'A' + session; }
std::vector<int32_t> CommonStart() { return ByteTokens("Both begin with this!"); }

kv::RetentionPolicy Policy(int session) {
  using Kind = kv::RetentionPolicy::Kind;
  switch (session % 4) {
    case 1:
      return {Kind::kSlidingWindow, 2, 9};
    case 2:
      return {Kind::kLayered, 2, 9, 1};
    case 3:
      return {Kind::kHeavyHitters, 2, 9, 0, 2, kPageTokens};
    default:
      return {};
  }
}

FakeReference ReferenceOf(int session) {
  const kv::RetentionPolicy policy = Policy(session);
  std::vector<ops::AttentionMask> masks;
  for (int layer = 0; layer < kLayers; ++layer) masks.push_back(policy.Mask(layer, 0));
  FakeReference reference(kVocabulary, std::move(masks),
                          {policy.sink_tokens, policy.window_tokens, policy.kept_pages,
                           policy.epoch_tokens, kPageTokens});
  reference.Append(CommonStart());
  reference.Append(std::vector<int32_t>(2 * kContext, Canary(session)));
  return reference;
}

// Pages of one principal's KV that were evicted and then taken for the other while
// both had sessions, by what they were evicted for.
class Crossings {
 public:
  explicit Crossings(Harness* harness) : harness_(harness) {
    kv::StoreAudit audit(&harness->store());
    for (int session = 0; session < kSessions; ++session) {
      owners_[audit.RootDigest(Principal(session), Policy(session))] = Principal(session);
    }
    harness->tags().on_page_freed = [this](base::PageId page, const kv::PageTag& tag) {
      freed_.emplace_back(page, owners_.at(tag.root));
    };
    // Under a step in flight an evicted page is freed later, and which it was is not told.
    if (TestsRunAhead()) return;
    harness->observer().on_evicted = [this](base::EvictionCause cause, int64_t pages) {
      ASSERT_LE(pages, static_cast<int64_t>(freed_.size()));
      for (auto at = freed_.end() - pages; at != freed_.end(); ++at) {
        evicted_[at->first] = {cause, at->second};
      }
      freed_.clear();
    };
    harness->tags().on_page_taken = [this](base::PageId page, const kv::PageTag& tag) {
      const auto found = evicted_.find(page);
      if (found == evicted_.end()) return;
      const auto& [cause, owner] = found->second;
      if (both_hold && owner != owners_.at(tag.root)) ++counts[cause];
      evicted_.erase(found);
    };
  }

  ~Crossings() {
    harness_->tags().on_page_freed = nullptr;
    harness_->tags().on_page_taken = nullptr;
    harness_->observer().on_evicted = nullptr;
  }

  bool both_hold = false;
  std::map<base::EvictionCause, int64_t> counts;

 private:
  Harness* const harness_;
  std::map<uint64_t, std::string> owners_;                   // by root
  std::vector<std::pair<base::PageId, std::string>> freed_;  // since the last eviction
  std::map<base::PageId, std::pair<base::EvictionCause, std::string>> evicted_;
};

// A model that repeats its last token, so that each turn says its session's alone;
// that it looked at no other's KV shows in the values that logits come from.
class Fuzz {
 public:
  explicit Fuzz(uint64_t seed) : rng_(seed), harness_(Options(seed)) {
    harness_.SetStepTime(absl::Milliseconds(3), absl::Microseconds(50));
    for (int session = 0; session < kSessions; ++session) {
      references_.push_back(ReferenceOf(session));
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
  int64_t crossed(base::EvictionCause cause) { return crossings_.counts[cause]; }

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
    options.backend.page_tokens = kPageTokens;
    options.pages = kLayers * (20 + static_cast<int64_t>(seed % 4) * 12);
    return options;
  }

  int Below(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }
  const Turn& Any() { return turns_[rng_() % turns_.size()]; }

  bool Holds(const char* principal) {
    const auto sessions = harness_.store().ListSessions(principal, "", 100);
    return std::any_of(sessions.begin(), sessions.end(),
                       [](const auto& session) { return session.tokens > 0; });
  }

  void Act() {
    const int session = Below(kSessions);
    crossings_.both_hold = Holds("ann") && Holds("bob");
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
  Crossings crossings_{&harness_};
};

TEST(IsolationTest, EachTurnSaysItsOwnSessionsTokens) {
  int64_t parks = 0, checked = 0, pages = 0, idle = 0, cached = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Fuzz fuzz(seed);
    fuzz.Run(150);
    parks += fuzz.parks();
    checked += fuzz.checked();
    pages += fuzz.checked_pages();
    idle += fuzz.crossed(base::EvictionCause::kIdle);
    cached += fuzz.crossed(base::EvictionCause::kPressure);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(parks, 10);
  EXPECT_GT(checked, 10000);
  EXPECT_GT(pages, 10 * checked);
  if (TestsRunAhead()) return;
  EXPECT_GT(idle, 100);
  EXPECT_GT(cached, 100);
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
