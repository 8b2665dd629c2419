// Who waits, for what, and who goes first.
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

HarnessOptions Options(int max_running, int max_queued) {
  HarnessOptions options;
  options.engine.max_running = max_running;
  options.engine.max_queued = max_queued;
  return options;
}

Request OnA(Request request, OnConflict on_conflict = OnConflict::kQueue) {
  request.session = OnSession("a");
  request.session->on_conflict = on_conflict;
  return request;
}

TEST(QueueTest, AFullQueueRefusesWithAHint) {
  Harness harness(Options(2, 3));
  harness.SetStepTime(absl::Milliseconds(100), absl::ZeroDuration());
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 5; ++i) sinks.push_back(harness.Submit(TokensRequest({5}, 100)));
  const auto full = harness.TrySubmit(TokensRequest({5}, 100));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::GetErrorReason(full), ErrorReason::kQueueFull);
  ASSERT_TRUE(base::GetErrorInfo(full)->retry_after.has_value());
  EXPECT_GE(*base::GetErrorInfo(full)->retry_after, absl::Milliseconds(100));
  EXPECT_LE(*base::GetErrorInfo(full)->retry_after, absl::Minutes(1));
  harness.Step();
  EXPECT_EQ(harness.scheduler().Snapshot().running, 2);
  EXPECT_FALSE(harness.TrySubmit(TokensRequest({5}, 100)).ok());
  harness.scheduler().Cancel(sinks[4].get());
  harness.Step();
  sinks.push_back(harness.Submit(TokensRequest({5}, 100)));
  harness.RunUntilIdle();
  for (const auto& sink : sinks) EXPECT_TRUE(sink->ended());
  EXPECT_THAT(harness.counts().ends,
              ElementsAre(Pair("cancelled", 1), Pair("length", 5), Pair("queue_full", 2)));
}

TEST(QueueTest, TheHintFollowsHowLongTurnsRun) {
  Harness harness(Options(1, 1));
  harness.SetStepTime(absl::Milliseconds(100), absl::ZeroDuration());
  for (int i = 0; i < 60; ++i) harness.Run(TokensRequest({5}, 50));
  harness.Submit(TokensRequest({5}, 50));
  harness.Submit(TokensRequest({5}, 50));
  const auto full = harness.TrySubmit(TokensRequest({5}, 50));
  // Two wait for turns of five seconds.
  EXPECT_NEAR(absl::ToDoubleSeconds(*base::GetErrorInfo(full)->retry_after), 15, 0.5);
}

TEST(QueueTest, TurnsStartInTheOrderOfArrival) {
  Harness harness(Options(1, 10));
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 5; ++i) sinks.push_back(harness.Submit(TokensRequest({5}, 3)));
  for (size_t next = 0; next < sinks.size(); ++next) {
    while (!sinks[next]->ended()) {
      harness.Step();
      for (size_t later = next + 1; later < sinks.size(); ++later) {
        ASSERT_FALSE(sinks[later]->started().has_value());
      }
    }
  }
}

TEST(QueueTest, SlowReadersKeepNobodyWaiting) {
  const auto request = [](int which) { return TokensRequest({5 + which, 9}, 20); };
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < 5; ++i) alone.push_back(Harness().Run(request(i))->tokens());
  Harness harness(Options(2, 3));
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 2; ++i) sinks.push_back(harness.Submit(request(i)));
  harness.Step(5);
  for (const auto& slow : sinks) slow->SetWritable(false);
  sinks.push_back(harness.Run(request(2)));
  EXPECT_TRUE(sinks[2]->finished().has_value());
  // They count as if they waited.
  for (int i = 3; i < 5; ++i) sinks.push_back(harness.Submit(request(i)));
  const auto last = harness.Submit(request(0));
  EXPECT_EQ(base::GetErrorReason(harness.TrySubmit(request(0))), ErrorReason::kQueueFull);
  harness.Step(5);
  EXPECT_EQ(sinks[4]->tokens().size(), 5u);
  EXPECT_EQ(base::GetErrorReason(harness.TrySubmit(request(0))), ErrorReason::kQueueFull);
  const size_t before = harness.counts().steps.size();
  for (int i = 0; i < 2; ++i) sinks[i]->SetWritable(true);
  harness.RunUntilIdle();
  for (size_t i = 0; i < sinks.size(); ++i) EXPECT_EQ(sinks[i]->tokens(), alone[i]) << i;
  EXPECT_EQ(last->tokens(), alone[0]);
  // Two at a time; those who came back wait for a place, and go before the last.
  const auto counts = harness.counts();
  for (size_t i = before; i < counts.steps.size(); ++i) {
    EXPECT_LE(counts.steps[i].decode_tokens + counts.steps[i].prefill_tokens, 2 + 1);
  }
  EXPECT_EQ(counts.steps.size() - before, 15u + 15u + 20u);
}

TEST(QueueTest, AnIdThatStillRunsIsRefusedAndAnEndedOneIsNot) {
  Harness harness;
  Request request = TokensRequest({5}, 10);
  request.id = "same";
  harness.Submit(request);
  const auto again = harness.TrySubmit(request);
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(base::GetErrorReason(again), ErrorReason::kRequestIdReused);
  harness.Step(2);
  EXPECT_FALSE(harness.TrySubmit(request).ok());
  Request other = request;
  other.principal = "q";
  harness.Submit(std::move(other));
  harness.RunUntilIdle();
  EXPECT_TRUE(harness.Run(request)->finished().has_value());
}

TEST(QueueTest, AStopBehindAReusedIdIsForTheNewTurn) {
  Harness harness;
  Request request = TokensRequest({5}, 10);
  request.id = "same";
  harness.Run(request);
  const auto sink = harness.Submit(request);
  harness.Step(2);
  bool answered = false;
  harness.scheduler().Stop("p", "same", std::nullopt, [&](absl::StatusOr<Finished> finished) {
    EXPECT_EQ(finished->reason, kv::FinishReason::kInterrupted);
    answered = true;
  });
  harness.Step();
  EXPECT_TRUE(answered);
  EXPECT_TRUE(sink->ended());
}

TEST(QueueTest, ASessionsTurnsRunOneAfterAnother) {
  Harness harness;
  const auto one = harness.Submit(OnA(TokensRequest(ByteTokens("ab"), 10)));
  const auto two = harness.Submit(OnA(TokensRequest(ByteTokens("cd"), 10)));
  // One that waits for its session holds up nobody behind it.
  const auto other = harness.Submit(TokensRequest(ByteTokens("ef"), 2));
  harness.Step(5);
  EXPECT_TRUE(other->ended());
  EXPECT_FALSE(two->started().has_value());
  harness.RunUntilIdle();
  EXPECT_EQ(one->finished()->version, "sessions/a/versions/1");
  EXPECT_EQ(two->started()->base_version, "sessions/a/versions/1");
  EXPECT_EQ(two->finished()->version, "sessions/a/versions/2");
  EXPECT_EQ(two->finished()->usage.base_tokens, 12);
}

TEST(QueueTest, AbortAndForkInsteadOfWaiting) {
  Harness harness;
  harness.Run(OnA(TokensRequest(ByteTokens("ab"), 4)));
  const auto running = harness.Submit(OnA(TokensRequest(ByteTokens("cd"), 50)));
  harness.Step(3);
  const auto busy = harness.TrySubmit(OnA(TokensRequest({5}, 1), OnConflict::kAbort));
  EXPECT_EQ(base::GetErrorReason(busy), ErrorReason::kSessionBusy);
  const auto fork = harness.Submit(OnA(TokensRequest(ByteTokens("ef"), 3), OnConflict::kFork));
  harness.Step(1);
  ASSERT_TRUE(fork->started().has_value());
  const std::string name = fork->started()->fork_name;
  EXPECT_EQ(name.rfind("sessions/", 0), 0u);
  EXPECT_EQ(fork->started()->base_version, "sessions/a/versions/1");
  harness.RunUntilIdle();
  EXPECT_EQ(fork->finished()->version, name + "/versions/1");
  EXPECT_EQ(running->finished()->version, "sessions/a/versions/2");
  EXPECT_EQ(harness.ReadSession(name.substr(9)).size(), 6u + 5);
}

// --- Context. ---

HarnessOptions SmallContext() {
  HarnessOptions options;
  options.engine.context_tokens = 64;
  return options;
}

TEST(ContextTest, InputThatLeavesNoRoomIsRefusedAndChangesNothing) {
  Harness harness(SmallContext());
  harness.Run(OnA(TokensRequest(std::vector<int32_t>(20, 5), 10)));
  const auto full = harness.Run(OnA(TokensRequest(std::vector<int32_t>(34, 6), 10)));
  EXPECT_EQ(full->failed()->code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(base::GetErrorReason(*full->failed()), ErrorReason::kContextFull);
  EXPECT_THAT(base::GetErrorInfo(*full->failed())->metadata,
              ElementsAre(Pair("context_length", "64"), Pair("needed_tokens", "65")));
  EXPECT_EQ(harness.ReadSession("a").size(), 30u);
  // Without output it just fits.
  const auto fits = harness.Run(OnA(TokensRequest(std::vector<int32_t>(34, 6), 0)));
  EXPECT_TRUE(fits->finished().has_value());
}

TEST(ContextTest, AFullContextEndsTheOutput) {
  Harness harness(SmallContext());
  for (const bool limited : {true, false}) {
    Request request = OnA(TokensRequest(std::vector<int32_t>(20, 5), 60));
    request.session->id = limited ? "a" : "b";
    if (!limited) request.stop.max_output_tokens.reset();
    const auto sink = harness.Run(std::move(request));
    EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kContextFull);
    EXPECT_EQ(sink->tokens().size(), 44u);
    EXPECT_EQ(harness.ReadSession(limited ? "a" : "b").size(), 64u);
  }
  const auto exact = harness.Run(TokensRequest(std::vector<int32_t>(20, 5), 44));
  EXPECT_EQ(exact->finished()->reason, kv::FinishReason::kLength);
}

TEST(ContextTest, LearnedPositionsEndWithTheContextBehindAWindowToo) {
  for (const bool learned : {false, true}) {
    HarnessOptions options = SmallContext();
    options.engine.learned_positions = learned;
    Harness harness(options);
    const auto turn = [] {
      Request request = OnA(TokensRequest(std::vector<int32_t>(30, 5), 10));
      request.session->spec_if_missing.retention = {kv::RetentionPolicy::Kind::kSlidingWindow, 2,
                                                    20};
      return request;
    };
    EXPECT_TRUE(harness.Run(turn())->finished().has_value());
    const auto second = harness.Run(turn());
    EXPECT_EQ(second->failed().has_value(), learned);
    if (!learned) continue;
    EXPECT_EQ(base::GetErrorReason(*second->failed()), ErrorReason::kContextFull);
    EXPECT_EQ(harness.ReadSession("a").size(), 40u);
  }
}

TEST(ContextTest, DropOldestKeepsTheInputsEnd) {
  Harness harness(SmallContext());
  harness.Run(OnA(TokensRequest(std::vector<int32_t>(20, 5), 10)));
  std::vector<int32_t> input;
  for (int i = 0; i < 50; ++i) input.push_back(kFirstByte + i);
  Request request = OnA(TokensRequest(input, 10));
  request.input_overflow = InputOverflow::kDropOldest;
  const auto sink = harness.Run(std::move(request));
  const Usage usage = sink->finished()->usage;
  EXPECT_EQ(usage.input_tokens, 33);
  EXPECT_EQ(usage.dropped_tokens, 17);
  EXPECT_EQ(usage.output_tokens, 1);
  const auto all = harness.ReadSession("a");
  EXPECT_EQ(std::vector<int32_t>(all.begin() + 30, all.end() - 1),
            std::vector<int32_t>(input.begin() + 17, input.end()));
  Request none = OnA(TokensRequest(input, 10));
  none.input_overflow = InputOverflow::kDropOldest;
  EXPECT_EQ(base::GetErrorReason(*harness.Run(std::move(none))->failed()),
            ErrorReason::kContextFull);
}

TEST(ContextTest, AWindowedSessionRunsOnForEverAndATurnDoesNot) {
  Harness harness(SmallContext());
  Request request = OnA(TokensRequest(std::vector<int32_t>(30, 5), 30));
  request.session->spec_if_missing.retention = {kv::RetentionPolicy::Kind::kSlidingWindow, 4, 24};
  for (int turn = 1; turn <= 10; ++turn) {
    Request next = request;
    next.id += std::to_string(turn);
    const auto sink = harness.Run(std::move(next));
    EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kLength);
    const Usage usage = sink->finished()->usage;
    EXPECT_EQ(usage.base_tokens, 60 * (turn - 1));
    EXPECT_GT(usage.evicted_tokens, 0);
  }
  Request endless = request;
  endless.stop.max_output_tokens.reset();
  const auto sink = harness.Run(std::move(endless));
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kLength);
  EXPECT_EQ(sink->finished()->usage.output_tokens, 64);
  const auto long_one = harness.Run(OnA(TokensRequest(std::vector<int32_t>(65, 5), 1)));
  EXPECT_EQ(base::GetErrorReason(*long_one->failed()), ErrorReason::kContextFull);
}

// --- Memory. Three layers, pages of 16 tokens. ---

HarnessOptions SmallPool(int64_t pages_per_layer) {
  HarnessOptions options;
  options.pages = 3 * pages_per_layer;
  return options;
}

TEST(PoolTest, WhatCanNeverFitIsRefusedWithoutAHint) {
  Harness harness(SmallPool(4));
  const auto sink = harness.Run(TokensRequest(std::vector<int32_t>(65, 5), 1));
  EXPECT_EQ(base::GetErrorReason(*sink->failed()), ErrorReason::kKvPoolFull);
  EXPECT_FALSE(base::GetErrorInfo(*sink->failed())->retry_after.has_value());
  EXPECT_TRUE(harness.Run(TokensRequest(std::vector<int32_t>(64, 5), 1))->finished().has_value());
}

TEST(PoolTest, OutputEndsWhereTheWholePoolDoes) {
  Harness harness(SmallPool(4));
  Request request = TokensRequest(std::vector<int32_t>(20, 5), 1);
  request.stop.max_output_tokens.reset();
  const auto sink = harness.Run(std::move(request));
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kContextFull);
  // 64 positions have KV; the token drawn last needs none.
  EXPECT_EQ(sink->finished()->usage.output_tokens, 45);
}

TEST(PoolTest, WhatFitsLaterWaits) {
  Harness harness(SmallPool(6));
  const auto one = harness.Submit(TokensRequest(std::vector<int32_t>(60, 5), 10));
  const auto two = harness.Submit(TokensRequest(std::vector<int32_t>(60, 6), 10));
  const auto three = harness.Submit(TokensRequest({7}, 1));
  harness.Step(5);
  EXPECT_TRUE(one->started().has_value());
  EXPECT_FALSE(two->started().has_value());
  EXPECT_FALSE(three->started().has_value());  // or the one before might never start
  harness.RunUntilIdle();
  for (const auto& sink : {one, two, three}) {
    EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kLength);
  }
}

TEST(PoolTest, AWaitingTurnCanBeCancelledWithItsBaseCheckedOut) {
  Harness harness(SmallPool(6));
  const auto one = harness.Submit(TokensRequest(std::vector<int32_t>(60, 5), 10));
  const auto two = harness.Submit(TokensRequest(std::vector<int32_t>(60, 6), 10));
  harness.Step(5);
  harness.scheduler().Cancel(two.get());
  harness.RunUntilIdle();
  EXPECT_TRUE(absl::IsCancelled(*two->failed()));
  EXPECT_TRUE(one->finished().has_value());
}

TEST(PoolTest, IdleSessionsMakeRoom) {
  Harness harness(SmallPool(6));
  Request idle = OnA(TokensRequest(std::vector<int32_t>(60, 5), 10));
  harness.Run(std::move(idle));
  const auto sink = harness.Run(TokensRequest(std::vector<int32_t>(80, 6), 10));
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kLength);
  // Its tokens stay, and the next turn computes them again.
  const auto back = harness.Run(OnA(TokensRequest({7}, 5)));
  EXPECT_EQ(back->finished()->usage.base_tokens, 70);
  EXPECT_GT(back->finished()->usage.recomputed_tokens, 0);
}

}  // namespace
}  // namespace tokend::engine
