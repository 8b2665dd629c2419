// How turns end.
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

constexpr absl::Duration kMs = absl::Milliseconds(1);

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Request OnA(Request request, CommitMode commit = CommitMode::kOnFinish) {
  request.session = OnSession("a");
  request.session->commit = commit;
  return request;
}

TEST(EndOfTurnTest, StopStringsCommitWhatCameBefore) {
  Harness harness;
  harness.Say(3, "hello <END> more");
  Request request = OnA(TokensRequest(ByteTokens("abc"), 50));
  request.stop.strings = {"nope", "<END>"};
  const auto sink = harness.Run(std::move(request));
  EXPECT_EQ(sink->text(), "hello ");
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kStop);
  EXPECT_EQ(sink->finished()->stop_string, "<END>");
  EXPECT_FALSE(sink->finished()->stop_token_id.has_value());
  EXPECT_EQ(sink->finished()->usage.output_tokens, 11);
  EXPECT_EQ(harness.ReadSession("a"), ByteTokens("abchello "));
  // The session goes on behind what was kept.
  const auto next = harness.Run(OnA(TokensRequest(ByteTokens("d"), 1)));
  EXPECT_EQ(next->started()->output_position, 10);
}

TEST(EndOfTurnTest, AStopStringMayBeAllThereIs) {
  Harness harness;
  harness.Say(3, "<END>");
  Request request = OnA(TokensRequest(ByteTokens("abc"), 50));
  request.stop.strings = {"<END>"};
  const auto sink = harness.Run(std::move(request));
  EXPECT_TRUE(sink->deltas().empty());
  EXPECT_EQ(harness.ReadSession("a"), ByteTokens("abc"));
}

TEST(EndOfTurnTest, HeldTextIsSentAtTheLengthLimit) {
  Harness harness;
  harness.Say(3, "x<EN");
  Request request = OnA(TokensRequest(ByteTokens("abc"), 4));
  request.stop.strings = {"<END>"};
  const auto sink = harness.Run(std::move(request));
  EXPECT_EQ(sink->text(), "x<EN");
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kLength);
  EXPECT_EQ(harness.ReadSession("a"), ByteTokens("abcx<EN"));
}

TEST(EndOfTurnTest, StopTokensAreCommittedAndNotSent) {
  Harness harness;
  harness.Say(3, "okZzz");
  Request request = OnA(TokensRequest(ByteTokens("abc"), 50));
  request.stop.token_ids = {ByteTokens("Z")[0]};
  const auto sink = harness.Run(std::move(request));
  EXPECT_EQ(sink->text(), "ok");
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kStop);
  EXPECT_EQ(sink->finished()->stop_token_id, ByteTokens("Z")[0]);
  EXPECT_EQ(sink->finished()->usage.output_tokens, 3);
  EXPECT_EQ(harness.ReadSession("a"), ByteTokens("abcokZ"));
}

TEST(EndOfTurnTest, EndOfTextIsCommittedAndNotSentUnlessIgnored) {
  Harness harness;
  harness.SetScript({{3, kFirstByte + 'h'}, {4, kEos}, {5, kFirstByte + 'i'}});
  Request request = OnA(TokensRequest(ByteTokens("abc"), 3));
  request.stop.ignore_end_of_text = false;
  const auto sink = harness.Run(request);
  EXPECT_EQ(sink->text(), "h");
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kEndOfText);
  EXPECT_EQ(harness.ReadSession("a"), Joined(ByteTokens("abch"), {kEos}));
  request.stop.ignore_end_of_text = true;
  request.session.reset();
  const auto ignored = harness.Run(std::move(request));
  EXPECT_EQ(ignored->text(), "h<|eos|>i");
  EXPECT_EQ(ignored->finished()->reason, kv::FinishReason::kLength);
}

TEST(EndOfTurnTest, CancelDropsTheTurnWithinAStep) {
  Harness harness;
  const auto sink = harness.Submit(OnA(TokensRequest(std::vector<int32_t>(100, 5), 500)));
  harness.Step(5);
  EXPECT_GT(harness.store().Snapshot().pages.private_pages, 0);
  harness.scheduler().Cancel(sink.get());
  harness.Step();
  EXPECT_TRUE(absl::IsCancelled(*sink->failed()));
  EXPECT_EQ(harness.store().Snapshot().pages.private_pages, 0);
  EXPECT_FALSE(harness.store().GetSession("p", "a").ok());
  EXPECT_THAT(harness.counts().ends, ElementsAre(Pair("cancelled", 1)));
  // Cancelling once more changes nothing.
  harness.scheduler().Cancel(sink.get());
  harness.RunUntilIdle();
}

TEST(EndOfTurnTest, ACancelledTurnInTheQueueNeverStarts) {
  HarnessOptions options;
  options.engine.max_running = 1;
  Harness harness(options);
  harness.Submit(TokensRequest({5}, 50));
  harness.Step();
  const auto queued = harness.Submit(TokensRequest({6}, 50));
  harness.scheduler().Cancel(queued.get());
  harness.RunUntilIdle();
  EXPECT_FALSE(queued->started().has_value());
  EXPECT_TRUE(absl::IsCancelled(*queued->failed()));
}

TEST(EndOfTurnTest, DeadlinesCountInTheQueueToo) {
  HarnessOptions options;
  options.engine.max_running = 1;
  Harness harness(options);
  harness.SetStepTime(10 * kMs, absl::ZeroDuration());
  Request request = TokensRequest({5}, 100);
  request.deadline = harness.clock().Monotonic() + 200 * kMs;
  const auto running = harness.Submit(request);
  request.id = "queued";
  request.deadline = harness.clock().Monotonic() + 100 * kMs;
  const auto queued = harness.Submit(request);
  harness.RunUntilIdle();
  EXPECT_EQ(base::GetErrorReason(*running->failed()), ErrorReason::kDeadlinePassed);
  EXPECT_EQ(running->failed()->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(running->tokens().size(), 20u);
  EXPECT_EQ(base::GetErrorReason(*queued->failed()), ErrorReason::kDeadlinePassed);
  EXPECT_FALSE(queued->started().has_value());
  request.id = "late";
  EXPECT_EQ(base::GetErrorReason(harness.TrySubmit(request)), ErrorReason::kDeadlinePassed);
}

TEST(EndOfTurnTest, PartialCommitKeepsWhatTheTransportTook) {
  for (const bool cancel : {true, false}) {
    Harness harness;
    harness.SetStepTime(10 * kMs, absl::ZeroDuration());
    harness.Say(3, "0123456789abcdefghij");
    Request request = OnA(TokensRequest(ByteTokens("abc"), 20), CommitMode::kPartial);
    if (!cancel) request.deadline = 100 * kMs;
    const auto sink = harness.Submit(std::move(request));
    harness.Step(8);
    sink->SetTaken(6);
    if (cancel) harness.scheduler().Cancel(sink.get());
    harness.RunUntilIdle();
    EXPECT_TRUE(sink->failed().has_value());
    EXPECT_EQ(harness.ReadSession("a"), ByteTokens("abc012345"));
    const auto versions = harness.store().ListVersions("p", "a", std::nullopt, 9).value();
    EXPECT_EQ(versions[0].reason, kv::FinishReason::kUnspecified);
  }
}

TEST(EndOfTurnTest, PartialCommitWithNothingTakenChangesNothing) {
  Harness harness;
  const auto sink = harness.Submit(OnA(TokensRequest(ByteTokens("abc"), 20), CommitMode::kPartial));
  harness.Step(8);
  sink->SetTaken(0);
  harness.scheduler().Cancel(sink.get());
  harness.Step();
  EXPECT_FALSE(harness.store().GetSession("p", "a").ok());
}

TEST(EndOfTurnTest, ASlowReaderHoldsUpItselfAlone) {
  Harness harness;
  harness.SetStepTime(10 * kMs, absl::ZeroDuration());
  const auto slow = harness.Submit(TokensRequest(ByteTokens("abc"), 20));
  const auto fast = harness.Submit(TokensRequest(ByteTokens("xyz"), 20));
  harness.Step(5);
  slow->SetWritable(false);
  harness.RunUntilIdle();
  EXPECT_TRUE(fast->ended());
  EXPECT_FALSE(slow->ended());
  EXPECT_EQ(slow->tokens().size(), 5u);
  slow->SetWritable(true);
  harness.RunUntilIdle();
  const Timings timings = slow->finished()->timings;
  EXPECT_EQ(timings.parked, 150 * kMs);
  EXPECT_EQ(timings.decode, 190 * kMs);
  EXPECT_EQ(timings.total, 350 * kMs);
}

TEST(EndOfTurnTest, AStalledReaderEndsAfterTheStallTimeout) {
  Harness harness;
  const auto sink = harness.Submit(OnA(TokensRequest(ByteTokens("abc"), 20)));
  harness.Step(5);
  sink->SetWritable(false);
  sink->SetBlockedSince(harness.clock().Monotonic());
  harness.clock().Advance(absl::Seconds(29));
  harness.RunUntilIdle();
  EXPECT_FALSE(sink->ended());
  EXPECT_LE(harness.scheduler().IdleTime(), absl::Seconds(1));
  harness.clock().Advance(absl::Seconds(1));
  harness.RunUntilIdle();
  EXPECT_EQ(base::GetErrorReason(*sink->failed()), ErrorReason::kReaderTooSlow);
  EXPECT_EQ(sink->failed()->code(), absl::StatusCode::kResourceExhausted);
}

TEST(EndOfTurnTest, AStalledReaderWhoseDeadlinePassedHearsOfOneEnd) {
  Harness harness;
  Request request = OnA(TokensRequest(ByteTokens("abc"), 20));
  request.deadline = harness.clock().Monotonic() + absl::Seconds(30);
  const auto sink = harness.Submit(std::move(request));
  harness.Step(5);
  sink->SetWritable(false);
  sink->SetBlockedSince(harness.clock().Monotonic());
  harness.clock().Advance(absl::Seconds(31));
  harness.RunUntilIdle();
  EXPECT_EQ(sink->failed()->code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(EndOfTurnTest, DeletingTheSessionEndsItsTurns) {
  Harness harness;
  harness.Run(OnA(TokensRequest(ByteTokens("abc"), 1)));
  const auto running = harness.Submit(OnA(TokensRequest(ByteTokens("abc"), 100)));
  const auto queued = harness.Submit(OnA(TokensRequest(ByteTokens("abc"), 100)));
  harness.Step(3);
  harness.Delete("a");
  harness.RunUntilIdle();
  for (const auto& sink : {running, queued}) {
    EXPECT_EQ(sink->failed()->code(), absl::StatusCode::kAborted);
    EXPECT_EQ(base::GetErrorReason(*sink->failed()), ErrorReason::kSessionDeleted);
  }
}

TEST(EndOfTurnTest, DrainEndsQueuedTurnsAtOnceAndRunningOnesInTime) {
  HarnessOptions options;
  options.engine.max_running = 2;
  Harness harness(options);
  harness.SetStepTime(10 * kMs, absl::ZeroDuration());
  const auto brief = harness.Submit(TokensRequest(ByteTokens("abc"), 8));
  const auto long_one =
      harness.Submit(OnA(TokensRequest(ByteTokens("abc"), 500), CommitMode::kPartial));
  const auto queued = harness.Submit(TokensRequest(ByteTokens("abc"), 8));
  harness.Step(2);
  harness.scheduler().BeginDrain(200 * kMs);
  harness.RunUntilIdle();
  EXPECT_EQ(brief->finished()->reason, kv::FinishReason::kLength);
  EXPECT_EQ(base::GetErrorReason(*queued->failed()), ErrorReason::kDraining);
  EXPECT_EQ(base::GetErrorReason(*long_one->failed()), ErrorReason::kDraining);
  EXPECT_EQ(harness.ReadSession("a").size(), 3u + long_one->tokens().size());
  EXPECT_EQ(base::GetErrorReason(harness.TrySubmit(TokensRequest({5}, 1))), ErrorReason::kDraining);
  harness.scheduler().WaitUntilEmpty();
}

TEST(EndOfTurnTest, ABackendFailureEndsAllAndIsToldOnce) {
  HarnessOptions options;
  options.engine.max_running = 2;
  Harness harness(options);
  const auto one = harness.Submit(OnA(TokensRequest(ByteTokens("abc"), 100)));
  const auto two = harness.Submit(TokensRequest(ByteTokens("abc"), 100));
  const auto queued = harness.Submit(TokensRequest(ByteTokens("abc"), 100));
  harness.Step(5);
  harness.backend().fail_forward_in = 1;
  const auto result = harness.scheduler().StepOnce();
  EXPECT_EQ(base::GetErrorReason(result.status()), ErrorReason::kBackendFailed);
  for (const auto& sink : {one, two}) {
    EXPECT_EQ(sink->failed()->code(), absl::StatusCode::kInternal);
    EXPECT_EQ(base::GetErrorReason(*sink->failed()), ErrorReason::kBackendFailed);
  }
  EXPECT_EQ(queued->failed()->code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(harness.store().GetSession("p", "a").ok());
  const int64_t steps = harness.backend().steps();
  for (int i = 0; i < 3; ++i) {
    const auto after = harness.scheduler().StepOnce();
    ASSERT_TRUE(after.ok());
    EXPECT_FALSE(*after);
  }
  EXPECT_EQ(harness.backend().steps(), steps);
  EXPECT_FALSE(harness.TrySubmit(TokensRequest({5}, 1)).ok());
}

TEST(EndOfTurnTest, AFailedPageCopyIsABackendFailure) {
  Harness harness;
  harness.Run(OnA(TokensRequest(std::vector<int32_t>(20, 5), 1)));
  const auto sink = harness.Submit(OnA(TokensRequest({6}, 1)));
  harness.backend().fail_copy_in = 1;
  EXPECT_EQ(base::GetErrorReason(harness.scheduler().StepOnce().status()),
            ErrorReason::kBackendFailed);
  EXPECT_EQ(base::GetErrorReason(*sink->failed()), ErrorReason::kBackendFailed);
}

TEST(EndOfTurnTest, WhatIsLeftAtTheEndOfTheSchedulerFails) {
  std::shared_ptr<RecordingSink> running;
  std::shared_ptr<RecordingSink> unseen;
  {
    Harness harness;
    running = harness.Submit(TokensRequest(ByteTokens("abc"), 100));
    harness.Step(3);
    unseen = harness.Submit(TokensRequest(ByteTokens("abc"), 100));
  }
  EXPECT_TRUE(running->failed().has_value());
  EXPECT_TRUE(unseen->failed().has_value());
}

}  // namespace
}  // namespace tokend::engine
