// StopGeneration: barge-in.
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/engine/scheduler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/engine/harness.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT
using base::ErrorReason;
using ::testing::ElementsAre;
using ::testing::Pair;

Request OnA(Request request, CommitMode commit = CommitMode::kOnFinish) {
  request.session = OnSession("a");
  request.session->commit = commit;
  return request;
}

class StopGenerationTest : public ::testing::Test {
 protected:
  // Ten tokens are out by then.
  std::shared_ptr<RecordingSink> StartTurn(CommitMode commit = CommitMode::kOnFinish) {
    harness_.Say(3, "0123456789abcdefghij");
    Request request = OnA(TokensRequest(ByteTokens("abc"), 20), commit);
    request.id = "turn";
    auto sink = harness_.Submit(std::move(request));
    harness_.Step(10);
    EXPECT_EQ(sink->tokens().size(), 10u);
    return sink;
  }

  absl::StatusOr<Finished> Stop(std::optional<int32_t> keep, absl::string_view id = "turn",
                                absl::string_view principal = "p") {
    absl::StatusOr<Finished> result = absl::UnknownError("no answer");
    int answers = 0;
    harness_.scheduler().Stop(principal, id, keep, [&](absl::StatusOr<Finished> finished) {
      result = std::move(finished);
      ++answers;
    });
    harness_.Step();
    EXPECT_EQ(answers, 1);
    return result;
  }

  Harness harness_;
};

TEST_F(StopGenerationTest, KeepsTheFirstTokens) {
  const auto sink = StartTurn();
  const auto finished = Stop(4);
  ASSERT_TRUE(finished.ok()) << finished.status();
  EXPECT_EQ(finished->reason, kv::FinishReason::kInterrupted);
  EXPECT_EQ(finished->version, "sessions/a/versions/1");
  EXPECT_EQ(sink->finished()->version, finished->version);
  EXPECT_EQ(harness_.ReadSession("a"), ByteTokens("abc0123"));
  EXPECT_THAT(harness_.counts().ends, ElementsAre(Pair("interrupted", 1)));
  // Repeating it tells how the turn ended.
  EXPECT_EQ(Stop(std::nullopt)->version, finished->version);
}

TEST_F(StopGenerationTest, KeepsTheInputAlone) {
  StartTurn();
  EXPECT_TRUE(Stop(0).ok());
  EXPECT_EQ(harness_.ReadSession("a"), ByteTokens("abc"));
}

TEST_F(StopGenerationTest, KeepsNothingUnlessAsked) {
  const auto sink = StartTurn();
  const auto finished = Stop(std::nullopt);
  ASSERT_TRUE(finished.ok());
  EXPECT_EQ(finished->version, "");
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kInterrupted);
  EXPECT_FALSE(harness_.store().GetSession("p", "a").ok());
  EXPECT_EQ(harness_.store().Snapshot().pages.private_pages, 0);
}

TEST_F(StopGenerationTest, KeepingMoreThanWasWrittenIsRefusedAndTheTurnRunsOn) {
  const auto sink = StartTurn();
  const auto finished = Stop(12);
  EXPECT_EQ(finished.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(sink->ended());
  harness_.RunUntilIdle();
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kLength);
  EXPECT_EQ(harness_.ReadSession("a").size(), 23u);
}

TEST_F(StopGenerationTest, KeepNeedsATurnThatCommits) {
  const auto sink = StartTurn(CommitMode::kNever);
  EXPECT_EQ(base::GetErrorReason(Stop(2).status()), ErrorReason::kInvalidField);
  EXPECT_FALSE(sink->ended());
  EXPECT_TRUE(Stop(std::nullopt).ok());
}

TEST_F(StopGenerationTest, UnknownTurnsAreNotFound) {
  StartTurn();
  EXPECT_EQ(Stop(0, "other").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Stop(0, "turn", "q").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(StopGenerationTest, IsKnownForTheReplayWindowAfterTheEnd) {
  StartTurn();
  harness_.RunUntilIdle();
  harness_.clock().Advance(absl::Minutes(2));
  EXPECT_EQ(Stop(std::nullopt)->reason, kv::FinishReason::kLength);
  harness_.clock().Advance(absl::Seconds(1));
  EXPECT_EQ(Stop(std::nullopt).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(StopGenerationTest, AFailedTurnIsNotFound) {
  const auto sink = StartTurn();
  harness_.scheduler().Cancel(sink.get());
  harness_.Step();
  EXPECT_EQ(Stop(0).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(StopGenerationTest, AQueuedTurnFinishesWithoutStarting) {
  const auto running = StartTurn();
  Request request = OnA(TokensRequest(ByteTokens("x"), 5));
  request.id = "queued";
  const auto queued = harness_.Submit(std::move(request));
  harness_.Step();
  EXPECT_EQ(Stop(1, "queued").status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(queued->ended());
  const auto finished = Stop(0, "queued");
  ASSERT_TRUE(finished.ok());
  EXPECT_EQ(finished->reason, kv::FinishReason::kInterrupted);
  EXPECT_EQ(finished->version, "");
  EXPECT_FALSE(queued->started().has_value());
  EXPECT_EQ(finished->usage.input_tokens, 0);
  EXPECT_EQ(finished->timings.total, queued->finished()->timings.total);
  EXPECT_EQ(queued->finished()->timings.queue, queued->finished()->timings.total);
  harness_.RunUntilIdle();
  EXPECT_EQ(running->finished()->version, "sessions/a/versions/1");
}

TEST_F(StopGenerationTest, DuringPrefillTheInputCanBeKept) {
  HarnessOptions options;
  options.engine.prefill_chunk_tokens = 10;
  Harness harness(options);
  const std::vector<int32_t> input(100, kFirstByte);
  Request request = OnA(TokensRequest(input, 5));
  request.id = "turn";
  const auto sink = harness.Submit(request);
  harness.Step(3);
  bool done = false;
  harness.scheduler().Stop("p", "turn", 0, [&](absl::StatusOr<Finished> finished) {
    ASSERT_TRUE(finished.ok()) << finished.status();
    EXPECT_EQ(finished->usage.computed_tokens, 30);
    done = true;
  });
  harness.Step();
  EXPECT_TRUE(done);
  EXPECT_EQ(harness.ReadSession("a"), input);
  // What has no KV yet is computed by the next turn.
  request.id = "next";
  request.input = TokenInput{{kFirstByte}};
  const auto next = harness.Run(std::move(request));
  EXPECT_EQ(next->finished()->usage.cached_tokens, 30);
  EXPECT_EQ(next->finished()->usage.computed_tokens, 71);
}

}  // namespace
}  // namespace tokend::engine
