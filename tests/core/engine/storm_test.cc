// Random submits, cancels, stops, deletions, slow readers, edits and drains
// against what must hold whatever happens.
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/engine/scheduler.h"
#include "gtest/gtest.h"
#include "tests/core/engine/harness.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT

class Storm {
 public:
  explicit Storm(uint64_t seed) : rng_(seed), harness_(Options(seed)) {
    harness_.SetStepTime(absl::Milliseconds(3), absl::Microseconds(50));
  }

  void Run(int actions) {
    for (int i = 0; i < actions; ++i) {
      Act();
      CheckSnapshot();
    }
    for (Turn& turn : turns_) {
      turn.sink->SetWritable(true);
      turn.sink->SetBlockedSince(absl::InfiniteDuration());
    }
    if (Below(3) == 0) harness_.scheduler().BeginDrain(absl::Milliseconds(Below(200)));
    harness_.RunUntilIdle();
    CheckEnd();
  }

  int64_t parks() { return harness_.scheduler().parks(); }

 private:
  struct Turn {
    std::string id;
    std::shared_ptr<RecordingSink> sink;
  };

  static HarnessOptions Options(uint64_t seed) {
    HarnessOptions options;
    options.engine.context_tokens = 256;
    options.engine.max_running = 1 + static_cast<int>(seed % 8);
    options.engine.max_queued = static_cast<int>(seed % 5) * 4;
    options.engine.prefill_chunk_tokens = seed % 2 == 0 ? 0 : 1 + static_cast<int>(seed % 40);
    options.engine.max_batch_tokens = 64;
    options.engine.stall_timeout = absl::Milliseconds(500);
    // Often too small for all that want to run.
    options.pages = 3 * (12 + static_cast<int64_t>(seed % 3) * 40);
    return options;
  }

  int Below(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }

  void Act() {
    switch (Below(12)) {
      case 0:
      case 1:
      case 2:
        Submit();
        break;
      case 3:
        if (!turns_.empty()) harness_.scheduler().Cancel(Any().sink.get());
        break;
      case 4:
        if (!turns_.empty()) Stop(Any().id);
        break;
      case 5: {
        if (turns_.empty()) break;
        RecordingSink& sink = *Any().sink;
        const bool writable = Below(2) == 0;
        sink.SetWritable(writable);
        sink.SetBlockedSince(writable || Below(2) == 0 ? absl::InfiniteDuration()
                                                       : harness_.clock().Monotonic());
        break;
      }
      case 6:
        if (Below(4) == 0) {
          (void)harness_.store().DeleteSession("p", AnySession(), std::nullopt, true);
        }
        break;
      case 7:
        (void)harness_.store().Fork("p", AnySession(), std::nullopt, AnySession(), std::nullopt);
        (void)harness_.store().Rollback("p", AnySession(), 1 + Below(3), std::nullopt);
        break;
      default:
        harness_.Step(1 + Below(4));
    }
  }

  Turn& Any() { return turns_[rng_() % turns_.size()]; }
  std::string AnySession() { return absl::StrCat("s", Below(4)); }

  Request MakeRequest() {
    std::vector<int32_t> tokens(Below(60));
    // Few values, so that prefixes match.
    for (int32_t& token : tokens) token = kFirstByte + Below(2);
    Request request = Below(3) == 0 ? ChatRequest({{kv::Role::kUser, "the inner"}}, Below(30))
                                    : TokensRequest(std::move(tokens), Below(60));
    if (Below(10) == 0) request.stop.max_output_tokens.reset();
    if (Below(3) == 0) request.stop.strings = {std::string(1, static_cast<char>('a' + Below(9)))};
    request.stop.ignore_end_of_text = Below(2) == 0;
    request.sampling.temperature = Below(2) == 0 ? 0 : 1;
    request.sampling.seed = rng_();
    if (Below(4) == 0) request.sampling.repetition_penalty = 1.3f;
    if (Below(5) == 0) request.top_logprobs = Below(21);
    if (Below(5) == 0) request.input_overflow = InputOverflow::kDropOldest;
    if (Below(4) == 0) {
      request.deadline = harness_.clock().Monotonic() + absl::Milliseconds(Below(300));
    }
    if (Below(4) != 0) request.session = MakeTarget();
    return request;
  }

  SessionTarget MakeTarget() {
    SessionTarget target = OnSession(AnySession());
    target.commit = static_cast<CommitMode>(Below(3));
    target.on_conflict = static_cast<OnConflict>(Below(3));
    if (Below(3) == 0) {
      target.spec_if_missing.retention = {kv::RetentionPolicy::Kind::kSlidingWindow, Below(5),
                                          8 + Below(40)};
    }
    if (Below(6) == 0) target.from_position = Below(80);
    if (Below(6) == 0) target.expected_version = Below(4);
    return target;
  }

  void Submit() {
    Request request = MakeRequest();
    if (Below(8) == 0 && !turns_.empty()) request.id = Any().id;
    ++submitted_;
    Turn turn{request.id, std::make_shared<RecordingSink>()};
    if (harness_.scheduler().Submit(std::move(request), turn.sink).ok()) {
      turns_.push_back(std::move(turn));
    } else {
      ++refused_;
      EXPECT_FALSE(turn.sink->ended());
    }
  }

  void Stop(const std::string& id) {
    ++stops_;
    const std::optional<int32_t> keep =
        Below(2) == 0 ? std::nullopt : std::optional<int32_t>(Below(10));
    harness_.scheduler().Stop("p", id, keep,
                              [this](const absl::StatusOr<Finished>&) { ++stops_answered_; });
  }

  void CheckSnapshot() {
    const EngineSnapshot snapshot = harness_.scheduler().Snapshot();
    const kv::PageCounts& pages = snapshot.store.pages;
    ASSERT_EQ(pages.free + pages.cached + pages.private_pages + pages.shared + pages.pinned +
                  pages.quarantined,
              pages.total);
    int open = 0;
    for (const Turn& turn : turns_) open += turn.sink->ended() ? 0 : 1;
    ASSERT_EQ(snapshot.running + snapshot.waiting, open);
  }

  void CheckEnd() {
    std::map<std::string, int> want;
    for (const Turn& turn : turns_) ASSERT_TRUE(turn.sink->ended()) << turn.id;
    const auto counts = harness_.counts();
    int ends = 0;
    for (const auto& [reason, count] : counts.ends) ends += count;
    EXPECT_EQ(ends, submitted_);
    int finished = 0;
    int64_t first_tokens = 0;
    for (const Turn& turn : turns_) {
      finished += turn.sink->finished().has_value() ? 1 : 0;
      if (!turn.sink->finished().has_value()) continue;
      const Usage usage = turn.sink->finished()->usage;
      EXPECT_GE(usage.output_tokens, static_cast<int32_t>(turn.sink->tokens().size()));
      first_tokens += usage.output_tokens > 0 ? 1 : 0;
    }
    int finished_by_label = 0;
    for (const char* label : {"stop", "end_of_text", "length", "context_full", "interrupted"}) {
      const auto found = counts.ends.find(label);
      if (found != counts.ends.end()) finished_by_label += found->second;
    }
    // An input that does not fit has the same name as an output that does not.
    EXPECT_GE(finished_by_label, finished);
    EXPECT_GE(counts.first_tokens, first_tokens);
    EXPECT_EQ(counts.generated, counts.first_tokens + counts.inter_tokens);
    EXPECT_EQ(stops_answered_, stops_);
    EXPECT_EQ(harness_.scheduler().Snapshot().running, 0);
    EXPECT_EQ(harness_.scheduler().Snapshot().waiting, 0);
    // With the sessions gone every page is free, or cached and without an owner.
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(
          harness_.store().DeleteSession("p", absl::StrCat("s", i), std::nullopt, true).ok());
    }
    for (const auto& session : harness_.store().ListSessions("p", "", 1000)) {
      EXPECT_EQ(session.active_turns, 0);
      EXPECT_TRUE(harness_.store().DeleteSession("p", session.id, std::nullopt, false).ok());
    }
    harness_.store().Maintain();
    const kv::PageCounts pages = harness_.store().Snapshot().pages;
    EXPECT_EQ(pages.free + pages.cached, pages.total);
  }

  std::mt19937_64 rng_;
  Harness harness_;
  std::vector<Turn> turns_;
  int submitted_ = 0;
  int refused_ = 0;
  int stops_ = 0;
  int stops_answered_ = 0;
};

TEST(StormTest, WhateverHappensNothingIsLostOrCountedTwice) {
  int64_t parks = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Storm storm(seed);
    storm.Run(150);
    parks += storm.parks();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(parks, 20);
}

}  // namespace
}  // namespace tokend::engine
