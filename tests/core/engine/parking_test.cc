// When memory is short: who gives way, and that nobody notices but for the time.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
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
using base::ErrorReason;

// Three layers, pages of 16 tokens.
HarnessOptions Pool(int64_t pages_per_layer, int chunk = 0) {
  HarnessOptions options;
  options.pages = 3 * pages_per_layer;
  options.engine.prefill_chunk_tokens = chunk;
  return options;
}

// Turn `which` has and draws this token alone, so that each row tells whose it is.
int32_t TokenOf(int which) { return kFirstByte + 'a' + which; }

Request TurnOf(int which, int input, int output) {
  Request request = TokensRequest(std::vector<int32_t>(input, TokenOf(which)), output);
  request.sampling.logit_bias = {{TokenOf(which), 1000.0f}};
  return request;
}

Request OnA(Request request) {
  request.session = OnSession("a");
  return request;
}

void ExpectCountsAddUp(const Usage& usage) {
  EXPECT_EQ(usage.base_tokens + usage.input_tokens, usage.cached_tokens + usage.computed_tokens);
}

std::vector<Request> ManyTurns() {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request request = TokensRequest(std::vector<int32_t>(10 + 9 * i, 5 + i), 90 - 5 * i);
    request.sampling.temperature = 1;
    request.sampling.seed = 7 + i;
    request.sampling.repetition_penalty = 1.1f;
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(ParkingTest, AllFinishWithTheTokensThatTheyHaveAlone) {
  for (const int chunk : {0, 1, 7, 64}) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    Harness harness(Pool(8, chunk));
    harness.SetStepTime(absl::Milliseconds(3), absl::Microseconds(50));
    for (Request& request : ManyTurns()) sinks.push_back(harness.Submit(std::move(request)));
    harness.RunUntilIdle();
    EXPECT_GT(harness.scheduler().parks(), 2);
    size_t i = 0;
    int64_t recomputed = 0;
    absl::Duration parked;
    for (Request& request : ManyTurns()) {
      Harness alone;
      const auto want = alone.Run(std::move(request));
      ASSERT_TRUE(sinks[i]->finished().has_value()) << sinks[i]->failed()->ToString();
      EXPECT_EQ(sinks[i]->finished()->reason, kv::FinishReason::kLength);
      EXPECT_EQ(sinks[i]->tokens(), want->tokens());
      ExpectCountsAddUp(sinks[i]->finished()->usage);
      recomputed += sinks[i]->finished()->usage.recomputed_tokens;
      parked += sinks[i]->finished()->timings.parked;
      ++i;
    }
    EXPECT_GT(recomputed, 0);
    EXPECT_GT(parked, absl::ZeroDuration());
    EXPECT_EQ(sinks[0]->finished()->timings.parked, absl::ZeroDuration()) << "the oldest";
    EXPECT_EQ(harness.counts().prompts, 6);
    EXPECT_EQ(harness.counts().first_tokens, 6);
    EXPECT_EQ(harness.store().Snapshot().pages.private_pages, 0);
  }
}

// A row whose position was computed before says that the turn was parked.
TEST(ParkingTest, AResumedTurnYieldsSixteenTokensBeforeTheNextTime) {
  int resumes = 0;
  std::minstd_rand random(3);
  for (const int chunk : {0, 1, 7}) {
    for (int pages = 26; pages < 36; ++pages) {
      Harness harness(Pool(pages, chunk));
      std::vector<std::shared_ptr<RecordingSink>> sinks;
      struct Seen {
        int64_t next = 0;
        size_t tokens_at_resume = 0;
        bool parked = false;
      };
      std::map<int, Seen> seen;
      const auto forward = harness.backend().on_forward;
      harness.backend().on_forward = [&](const ops::StepBatch& batch) {
        for (const ops::StepSequence& sequence : batch.sequences) {
          const int which = batch.tokens[sequence.first_row] - TokenOf(0);
          Seen& turn = seen[which];
          if (sequence.position < turn.next) {
            const size_t tokens = sinks[which]->tokens().size();
            if (turn.parked) {
              EXPECT_GE(tokens, turn.tokens_at_resume + 16) << which;
              ++resumes;
            }
            turn.parked = true;
            turn.tokens_at_resume = tokens;
          }
          turn.next = sequence.position + sequence.rows;
        }
        return forward(batch);
      };
      for (int i = 0; i < 12; ++i) {
        const int input = 1 + static_cast<int>(random() % 20);
        const int output = 1 + static_cast<int>(random() % 390);
        sinks.push_back(harness.Submit(TurnOf(i, input, output)));
      }
      harness.RunUntilIdle();
      for (const auto& sink : sinks) EXPECT_TRUE(sink->finished().has_value());
    }
  }
  EXPECT_GT(resumes, 5) << "the second time or later";
}

// The first will need the whole pool; the second is parked by now.
struct Parked {
  explicit Parked(Request request, int64_t pages = 8) : harness(Pool(pages)) {
    harness.SetStepTime(absl::Milliseconds(1), absl::ZeroDuration());
    first = harness.Submit(TurnOf(0, 10, 118));
    second = harness.Submit(std::move(request));
    while (harness.scheduler().parks() == 0 && !first->ended()) harness.Step();
    harness.Step(3);
    EXPECT_EQ(harness.scheduler().parks(), 1);
    EXPECT_FALSE(first->ended() || second->ended());
    EXPECT_FALSE(second->tokens().empty());
  }
  // And nothing is left of the second, which has ended.
  void ExpectFirstFinishes() {
    harness.RunUntilIdle();
    EXPECT_EQ(first->tokens().size(), 118u);
    EXPECT_TRUE(second->ended());
    const kv::PageCounts pages = harness.store().Snapshot().pages;
    EXPECT_EQ(pages.free + pages.cached, pages.total);
  }

  Harness harness;
  std::shared_ptr<RecordingSink> first, second;
};

TEST(ParkingTest, AParkedTurnCanBeCancelled) {
  Parked parked(OnA(TurnOf(1, 10, 100)));
  parked.harness.scheduler().Cancel(parked.second.get());
  parked.harness.Step();
  ASSERT_TRUE(parked.second->failed().has_value());
  EXPECT_TRUE(absl::IsCancelled(*parked.second->failed()));
  EXPECT_FALSE(parked.harness.store().GetSession("p", "a").ok());
  parked.ExpectFirstFinishes();
}

TEST(ParkingTest, AParkedTurnKeepsItsDeadline) {
  Request request = TurnOf(1, 10, 100);
  request.deadline = absl::Milliseconds(90);
  Parked parked(std::move(request));
  while (!parked.second->ended()) parked.harness.Step();
  EXPECT_FALSE(parked.first->ended());
  EXPECT_EQ(base::GetErrorReason(*parked.second->failed()), ErrorReason::kDeadlinePassed);
  parked.ExpectFirstFinishes();
}

TEST(ParkingTest, AParkedTurnsSessionCanBeDeleted) {
  Parked parked(OnA(TurnOf(1, 10, 100)));
  parked.harness.Delete("a");
  parked.harness.Step();
  EXPECT_EQ(base::GetErrorReason(*parked.second->failed()), ErrorReason::kSessionDeleted);
  parked.ExpectFirstFinishes();
}

TEST(ParkingTest, DrainLetsAParkedTurnResumeAndFinish) {
  Parked parked(OnA(TurnOf(1, 10, 100)));
  parked.harness.scheduler().BeginDrain(absl::Seconds(100));
  parked.harness.RunUntilIdle();
  EXPECT_TRUE(parked.first->finished().has_value());
  EXPECT_EQ(parked.second->tokens().size(), 100u);
  EXPECT_EQ(parked.harness.ReadSession("a").size(), 110u);
}

TEST(ParkingTest, DrainEndsWhatIsStillParked) {
  Parked parked(OnA(TurnOf(1, 10, 100)));
  parked.harness.scheduler().BeginDrain(absl::Milliseconds(5));
  parked.harness.RunUntilIdle();
  EXPECT_EQ(base::GetErrorReason(*parked.second->failed()), ErrorReason::kDraining);
}

TEST(ParkingTest, StopKeepsWhatAParkedTurnWrote) {
  Request request = OnA(TurnOf(1, 10, 100));
  const std::string id = request.id;
  Parked parked(std::move(request));
  std::optional<absl::StatusOr<Finished>> answer;
  parked.harness.scheduler().Stop(
      "p", id, 12, [&answer](const absl::StatusOr<Finished>& finished) { answer = finished; });
  parked.harness.Step();
  ASSERT_TRUE(answer.has_value() && answer->ok());
  EXPECT_EQ((*answer)->version, "sessions/a/versions/1");
  EXPECT_EQ(parked.harness.ReadSession("a"), std::vector<int32_t>(22, TokenOf(1)));
  parked.harness.RunUntilIdle();
  EXPECT_EQ(parked.first->tokens().size(), 118u);
  EXPECT_TRUE(parked.harness.Run(OnA(TurnOf(1, 5, 5)))->finished().has_value());
}

TEST(ParkingTest, APartialCommitKeepsWhatTheTransportTook) {
  Request request = OnA(TurnOf(1, 10, 100));
  request.session->commit = CommitMode::kPartial;
  Parked parked(std::move(request));
  parked.second->SetTaken(20);
  parked.harness.scheduler().Cancel(parked.second.get());
  parked.harness.Step();
  EXPECT_TRUE(absl::IsCancelled(*parked.second->failed()));
  EXPECT_EQ(parked.harness.ReadSession("a"), std::vector<int32_t>(30, TokenOf(1)));
  parked.harness.RunUntilIdle();
  EXPECT_EQ(parked.first->tokens().size(), 118u);
  // What was lost is computed again, and the fake model finds it as it was.
  const auto next = parked.harness.Run(OnA(TurnOf(1, 5, 5)));
  EXPECT_EQ(next->finished()->usage.base_tokens, 30);
  EXPECT_GT(next->finished()->usage.recomputed_tokens, 0);
}

TEST(ParkingTest, WhoWaitsForItsReaderGivesWayFirst) {
  Harness harness(Pool(8));
  const auto slow = harness.Submit(TurnOf(0, 10, 100));
  const auto quick = harness.Submit(TurnOf(1, 10, 90));
  harness.Step(40);
  slow->SetWritable(false);
  while (harness.scheduler().parks() == 0) harness.Step();
  EXPECT_FALSE(quick->ended());
  while (!quick->ended()) harness.Step();
  EXPECT_EQ(harness.scheduler().parks(), 1);
  EXPECT_EQ(quick->finished()->timings.parked, absl::ZeroDuration());
  EXPECT_LT(slow->tokens().size(), 60u);
  harness.Step(3);
  EXPECT_FALSE(slow->ended());
  slow->SetWritable(true);
  harness.RunUntilIdle();
  EXPECT_EQ(slow->tokens(), std::vector<int32_t>(100, TokenOf(0)));
}

// Whatever the pool and the policy: a turn that is alone either does not start, and
// then for want of memory or of context, or has its output.
void RunAloneInPools(const kv::RetentionPolicy& retention) {
  const bool window = retention.kind == kv::RetentionPolicy::Kind::kSlidingWindow;
  for (int pages = 1; pages <= 12; ++pages) {
    Harness harness(Pool(pages));
    int started = 0;
    for (int i = 0; i < 20; ++i) {
      Request request = OnA(TurnOf(i, 5 + i, 30 + 10 * i));
      request.session->spec_if_missing.retention = retention;
      const auto sink = harness.Run(std::move(request));
      const std::string where = absl::StrCat(pages, " pages, turn ", i);
      if (!sink->started().has_value()) {
        const bool context_full = !window && absl::IsOutOfRange(*sink->failed());
        EXPECT_TRUE(context_full || absl::IsResourceExhausted(*sink->failed()))
            << where << ": " << *sink->failed();
        continue;
      }
      ++started;
      ASSERT_TRUE(sink->finished().has_value()) << where << ": " << *sink->failed();
      if (window) {
        EXPECT_EQ(sink->finished()->usage.recomputed_tokens, 0) << where;
      }
    }
    // A window that the pool holds once goes on for ever.
    if (window && started > 4) {
      EXPECT_EQ(started, 20) << pages << " pages";
    }
  }
}

TEST(ParkingTest, ATurnThatStartsAloneIsNotLostForWantOfMemory) {
  RunAloneInPools({});
  for (int window : {1, 15, 16, 17, 60, 63, 64, 65}) {
    SCOPED_TRACE(absl::StrCat("a window of ", window));
    RunAloneInPools({kv::RetentionPolicy::Kind::kSlidingWindow, 4, window});
  }
  RunAloneInPools({kv::RetentionPolicy::Kind::kHeavyHitters, 4, 48, 0, 1, 16});
}

TEST(ParkingTest, AnEditHasThePoolWithoutWhatItCutsOff) {
  Harness harness(Pool(6));
  ASSERT_TRUE(harness.Run(OnA(TurnOf(0, 80, 6)))->finished().has_value());
  Request edit = OnA(TurnOf(1, 40, 30));
  edit.session->from_position = 20;
  const auto sink = harness.Run(std::move(edit));
  ASSERT_TRUE(sink->finished().has_value()) << *sink->failed();
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kLength);
}

// What the head has beside it is given up; dropped, the turn leaves tokens to compute.
TEST(ParkingTest, AnEditThatIsDroppedLeavesTheTokens) {
  Harness harness(Pool(6));
  ASSERT_TRUE(harness.Run(OnA(TurnOf(0, 80, 6)))->finished().has_value());
  const std::vector<int32_t> before = harness.ReadSession("a");
  Request edit = OnA(TurnOf(1, 40, 30));
  edit.session->from_position = 20;
  const auto sink = harness.Submit(std::move(edit));
  harness.Step(10);
  harness.scheduler().Cancel(sink.get());
  harness.RunUntilIdle();
  EXPECT_EQ(harness.ReadSession("a"), before);
  const auto next = harness.Run(OnA(TurnOf(2, 4, 5)));
  ASSERT_TRUE(next->finished().has_value()) << *next->failed();
  EXPECT_GT(next->finished()->usage.recomputed_tokens, 0);
}

// Neither a parked turn nor its pages hold up anybody while its reader is slow.
TEST(ParkingTest, WhoWaitsForItsReaderMakesRoomForANewTurn) {
  Harness harness(Pool(8));
  const auto slow = harness.Submit(TurnOf(0, 90, 30));
  harness.Step(10);
  slow->SetWritable(false);
  EXPECT_TRUE(harness.Run(TurnOf(1, 100, 20))->finished().has_value());
  EXPECT_EQ(harness.scheduler().parks(), 1);
  EXPECT_TRUE(harness.Run(TurnOf(2, 100, 20))->finished().has_value());
  EXPECT_FALSE(slow->ended());
  slow->SetWritable(true);
  harness.RunUntilIdle();
  EXPECT_EQ(slow->tokens(), std::vector<int32_t>(30, TokenOf(0)));
}

TEST(ParkingTest, WhoseReaderIsBackWaitsForAPlaceToo) {
  HarnessOptions options = Pool(8);
  options.engine.max_running = 1;
  Harness harness(options);
  const auto slow = harness.Submit(TurnOf(0, 10, 30));
  harness.Step(10);
  slow->SetWritable(false);
  EXPECT_TRUE(harness.Run(TurnOf(1, 100, 20))->finished().has_value());
  EXPECT_EQ(harness.scheduler().parks(), 1);
  const auto quick = harness.Submit(TurnOf(2, 10, 20));
  harness.Step(3);
  slow->SetWritable(true);
  const size_t before = slow->tokens().size();
  while (!quick->ended()) {
    harness.Step();
    ASSERT_TRUE(quick->ended() || slow->tokens().size() == before);
  }
  harness.RunUntilIdle();
  EXPECT_EQ(slow->tokens(), std::vector<int32_t>(30, TokenOf(0)));
}

TEST(ParkingTest, NobodyNewStartsBeforeAParkedTurn) {
  Parked parked(TurnOf(1, 10, 100));
  const auto later = parked.harness.Submit(TurnOf(2, 1, 1));
  while (!parked.first->ended()) {
    EXPECT_FALSE(later->started().has_value());
    parked.harness.Step();
  }
  parked.harness.RunUntilIdle();
  EXPECT_TRUE(later->finished().has_value());
}

TEST(ParkingTest, ASessionWhoseTurnsOnlyWaitGivesItsKv) {
  HarnessOptions options = Pool(8);
  options.engine.max_running = 1;
  Harness harness(options);
  ASSERT_TRUE(harness.Run(OnA(TurnOf(0, 60, 10)))->finished().has_value());
  const auto runs = harness.Submit(TurnOf(1, 10, 118));
  const auto waits = harness.Submit(OnA(TurnOf(0, 1, 5)));
  harness.RunUntilIdle();
  EXPECT_EQ(runs->finished()->reason, kv::FinishReason::kLength);
  EXPECT_EQ(runs->tokens().size(), 118u);
  EXPECT_EQ(waits->finished()->usage.base_tokens, 70);
  EXPECT_GT(waits->finished()->usage.recomputed_tokens, 0);
}

}  // namespace
}  // namespace tokend::engine
