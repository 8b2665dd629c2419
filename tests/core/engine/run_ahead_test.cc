// The next step starts before this one's tokens are read. Whole suites run in that mode,
// too ($TOKEND_TEST_RUN_AHEAD); here is what is special about it.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/engine/scheduler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/engine/harness.h"
#include "tests/core/kv/store_audit.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT
using base::ErrorReason;

HarnessOptions Options(bool ahead) {
  HarnessOptions options;
  options.backend.draws_tokens = true;
  options.backend.steps_in_flight = ahead ? 2 : 1;
  return options;
}

Request OnA(Request request) {
  request.session = OnSession("a");
  return request;
}

int64_t Sum(const kv::PageCounts& pages) {
  return pages.free + pages.cached + pages.private_pages + pages.shared + pages.pinned +
         pages.quarantined;
}

// Looks at the pages when its turn ends.
class PageSink : public RecordingSink {
 public:
  explicit PageSink(kv::SessionStore* store) : store_(store) {}
  void OnFinished(const Finished& finished) override {
    pages = store_->Snapshot().pages;
    RecordingSink::OnFinished(finished);
  }
  void OnFailed(const absl::Status& status) override {
    pages = store_->Snapshot().pages;
    RecordingSink::OnFailed(status);
  }
  kv::PageCounts pages;

 private:
  kv::SessionStore* const store_;
};

std::shared_ptr<PageSink> SubmitTo(Harness* harness, Request request) {
  auto sink = std::make_shared<PageSink>(&harness->store());
  EXPECT_TRUE(harness->scheduler().Submit(std::move(request), sink).ok());
  return sink;
}

// What clients and operators see of some turns that end in each way.
std::vector<std::string> Story(bool ahead, int max_running, int64_t pages) {
  HarnessOptions options = Options(ahead);
  options.engine.max_running = max_running;
  options.engine.prefill_chunk_tokens = 7;
  options.pages = pages;
  Harness harness(options);
  std::vector<std::string> seen;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 8; ++i) {
      Request request =
          TokensRequest(std::vector<int32_t>(3 + 5 * i, kFirstByte + i), i == 7 ? 5 : 30 + 9 * i);
      request.id = absl::StrCat(round, "-", i);
      request.sampling.seed = i;
      request.sampling.temperature = i == 0 ? 0 : 0.5f;
      if (i % 2 == 1) request.session = OnSession(absl::StrCat("s", i));
      if (i == 3) {
        request.session->spec_if_missing =
            kv::SessionSpec{.retention = {kv::RetentionPolicy::Kind::kSlidingWindow, 2, 20}};
      }
      // Some of the vocabulary's tokens: drawn sooner or later.
      if (i >= 4) request.stop.token_ids = {100 + i, 120 + i, 140 + i, 160 + i, 180 + i};
      if (i == 5) request.stop.strings = {"a", "b", "c", "\x80", "\x90"};
      if (i == 6) request.stop.ignore_end_of_text = false;
      if (i == 7) request.sampling.repetition_penalty = 1.2f;
      sinks.push_back(harness.Submit(std::move(request)));
    }
    harness.RunUntilIdle();
    for (const auto& sink : sinks) {
      EXPECT_TRUE(sink->finished().has_value());
      const Finished finished = sink->finished().value_or(Finished{});
      const Usage& usage = finished.usage;
      seen.push_back(absl::StrCat(sink->raw(), "|", static_cast<int>(finished.reason), " ",
                                  finished.version, " ", finished.stop_token_id.value_or(-1),
                                  finished.stop_string, " base ", usage.base_tokens, " out ",
                                  usage.output_tokens,
                                  pages > 1000 ? absl::StrCat(" cached ", usage.cached_tokens) : "",
                                  " evicted ", usage.evicted_tokens));
    }
    for (const kv::SessionInfo& session : harness.store().ListSessions("p", "", 100)) {
      seen.push_back(absl::StrCat(session.id, ": ", session.tokens));
      if (pages > 1000) seen.back() += absl::StrCat(", resident ", session.resident_tokens);
    }
  }
  EXPECT_EQ(harness.backend().steps_ahead() > 0, ahead);
  return seen;
}

TEST(RunAheadTest, NobodySeesADifference) {
  for (const int running : {1, 3, 8}) {
    EXPECT_EQ(Story(true, running, 3 * 512), Story(false, running, 3 * 512)) << running;
  }
}

TEST(RunAheadTest, NorUnderPressure) { EXPECT_EQ(Story(true, 8, 3 * 24), Story(false, 8, 3 * 24)); }

// The row behind the last token is computed, and nothing keeps it.
TEST(RunAheadTest, ARowTooManyIsThrownAway) {
  for (const int32_t input : {1, 2, 3, 14, 15, 16, 17}) {
    std::optional<uint64_t> sums[2];
    int64_t rows[2];
    for (const bool ahead : {false, true}) {
      Harness harness(Options(ahead));
      harness.SetScript({{input + 2, kEos}});
      Request request = OnA(TokensRequest(std::vector<int32_t>(input, 5), 50));
      request.stop.ignore_end_of_text = false;
      const auto sink = harness.Run(request);
      EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kEndOfText);
      const kv::SessionInfo info = *harness.store().GetSession("p", "a");
      EXPECT_EQ(info.tokens, input + 3);
      EXPECT_EQ(info.resident_tokens, input + 2) << "the last token has no KV";
      EXPECT_THAT(kv::StoreAudit(&harness.store()).Check(), ::testing::IsEmpty());
      rows[ahead] = harness.backend().rows();
      // Whoever goes on computes that row, whatever lies there.
      harness.SetScript({});
      request.id += "+";
      request.input = TokenInput{{9, 9}};
      request.stop.max_output_tokens = 3;
      const auto next = harness.Run(request);
      EXPECT_EQ(next->finished()->usage.cached_tokens, input + 2);
      sums[ahead] = 0;
      for (const int32_t token : harness.ReadSession("a")) *sums[ahead] = *sums[ahead] * 31 + token;
    }
    EXPECT_EQ(rows[1], rows[0] + 1);
    EXPECT_EQ(sums[1], sums[0]);
  }
}

TEST(RunAheadTest, NoRowIsWastedAtTheLimit) {
  Harness harness(Options(true));
  harness.Run(TokensRequest({5, 6, 7}, 20));
  EXPECT_EQ(harness.backend().rows(), 3 + 19);
  EXPECT_EQ(harness.backend().steps_ahead(), 18);
}

TEST(RunAheadTest, ACancelFreesItsPagesTwoStepsLaterAtMost) {
  Harness harness(Options(true));
  const auto stays = harness.Submit(TokensRequest({6}, 400));
  harness.Step(2);
  const int64_t alone = harness.store().Snapshot().pages.private_pages;
  const auto sink = SubmitTo(&harness, OnA(TokensRequest(std::vector<int32_t>(100, 5), 500)));
  harness.Step(6);
  const size_t sent = sink->tokens().size();
  harness.scheduler().Cancel(sink.get());
  const int64_t steps = harness.backend().steps();
  harness.Step();
  EXPECT_TRUE(absl::IsCancelled(*sink->failed()));
  EXPECT_EQ(sink->tokens().size(), sent);
  EXPECT_GT(sink->pages.quarantined, 0);
  EXPECT_EQ(Sum(sink->pages), sink->pages.total);
  harness.Step();
  EXPECT_LE(harness.backend().steps(), steps + 2);
  const kv::PageCounts pages = harness.store().Snapshot().pages;
  EXPECT_EQ(pages.quarantined, 0);
  EXPECT_EQ(pages.private_pages, alone);
  EXPECT_EQ(Sum(pages), pages.total);
  EXPECT_FALSE(harness.store().GetSession("p", "a").ok());
  harness.scheduler().Cancel(stays.get());
  harness.RunUntilIdle();
}

// Pages that were in quarantine when the step that has them failed are free, too.
TEST(RunAheadTest, AFailureAtAnyStepLeavesWhatWasCommitted) {
  for (const bool at_submit : {true, false}) {
    int fired = 0;
    for (int nth = 1; nth < 40; ++nth) {
      Harness harness(Options(true));
      const auto first = harness.Run(OnA(TokensRequest(std::vector<int32_t>(20, 5), 10)));
      const std::vector<int32_t> committed = harness.ReadSession("a");
      (at_submit ? harness.backend().fail_submit_in : harness.backend().fail_forward_in) = nth;
      const auto sink = SubmitTo(&harness, OnA(TokensRequest(std::vector<int32_t>(30, 5), 12)));
      const auto other = harness.Submit(TokensRequest({7, 8}, 17));
      harness.RunUntilIdle();
      const kv::PageCounts pages = harness.store().Snapshot().pages;
      EXPECT_EQ(pages.quarantined, 0);
      EXPECT_EQ(Sum(sink->pages), pages.total);
      EXPECT_THAT(kv::StoreAudit(&harness.store()).Check(), ::testing::IsEmpty());
      if (other->finished().has_value()) break;
      ++fired;
      EXPECT_EQ(base::GetErrorReason(*other->failed()), ErrorReason::kBackendFailed);
      if (sink->failed().has_value()) {
        EXPECT_EQ(base::GetErrorReason(*sink->failed()), ErrorReason::kBackendFailed);
        EXPECT_EQ(harness.ReadSession("a"), committed);
      } else {
        EXPECT_EQ(harness.ReadSession("a").size(), committed.size() + 42);
      }
    }
    EXPECT_GE(fired, 15);
  }
}

// What the backend does not draw is read before the next step.
TEST(RunAheadTest, PenaltiesAndLogProbabilitiesWait) {
  for (const bool penalty : {false, true}) {
    Harness harness(Options(true));
    Request request = TokensRequest({5, 6}, 20);
    if (penalty) request.sampling.presence_penalty = 0.5f;
    if (!penalty) request.top_logprobs = 2;
    const auto sink = harness.Submit(std::move(request));
    const auto plain = harness.Submit(TokensRequest({5, 6}, 40));
    while (!sink->ended()) harness.Step();
    EXPECT_EQ(harness.backend().steps_ahead(), 0);
    harness.RunUntilIdle();
    EXPECT_GT(harness.backend().steps_ahead(), 10);
    EXPECT_EQ(plain->tokens().size(), 40u);
  }
}

TEST(RunAheadTest, WhoCanStartIsInTheStepAfterTheNext) {
  HarnessOptions options = Options(true);
  options.engine.max_running = 2;
  Harness harness(options);
  harness.Submit(TokensRequest({5}, 100));
  harness.Step(5);
  const auto second = harness.Submit(TokensRequest({6}, 10));
  harness.Step(2);
  EXPECT_TRUE(second->started().has_value());
  // All places are taken: whoever waits holds up nobody.
  const auto third = harness.Submit(TokensRequest({6}, 10));
  const int64_t before = harness.backend().steps_ahead();
  harness.Step(5);
  EXPECT_EQ(harness.backend().steps_ahead(), before + 5);
  EXPECT_FALSE(third->started().has_value());
  harness.RunUntilIdle();
  EXPECT_TRUE(third->finished().has_value());
}

TEST(RunAheadTest, ASlowReadersTurnStopsATokenLater) {
  Harness harness(Options(true));
  const auto slow = harness.Submit(TokensRequest({5}, 60));
  const auto other = harness.Submit(TokensRequest({6}, 100));
  harness.Step(10);
  slow->SetWritable(false);
  const size_t sent = slow->tokens().size();
  harness.Step(20);
  EXPECT_LE(slow->tokens().size(), sent + 1);
  EXPECT_EQ(other->tokens().size(), 30u);
  slow->SetWritable(true);
  harness.RunUntilIdle();
  Harness alone(Options(false));
  EXPECT_EQ(slow->tokens(), alone.Run(TokensRequest({5}, 60))->tokens());
}

// A stop in between keeps what was read.
TEST(RunAheadTest, AStoppedTurnKeepsWhatWasSent) {
  Harness harness(Options(true));
  Request request = OnA(TokensRequest(std::vector<int32_t>(12, 5), 200));
  const std::string id = request.id;
  const auto sink = harness.Submit(std::move(request));
  harness.Step(8);
  const std::vector<int32_t> sent = sink->tokens();
  absl::StatusOr<Finished> stopped = absl::UnknownError("not yet");
  harness.scheduler().Stop("p", id, static_cast<int32_t>(sent.size()) - 2,
                           [&](absl::StatusOr<Finished> finished) { stopped = finished; });
  harness.RunUntilIdle();
  ASSERT_TRUE(stopped.ok());
  const std::vector<int32_t> kept = harness.ReadSession("a");
  EXPECT_EQ(std::vector<int32_t>(kept.begin() + 12, kept.end()),
            std::vector<int32_t>(sent.begin(), sent.end() - 2));
}

// From one completion to the next.
TEST(RunAheadTest, StepsTakeTheTimeBetweenTheirEnds) {
  Harness harness(Options(true));
  harness.SetStepTime(absl::Milliseconds(10), absl::ZeroDuration());
  const auto sink = harness.Run(TokensRequest({5, 6, 7}, 20));
  absl::Duration all;
  for (const base::StepReport& step : harness.counts().steps) {
    EXPECT_EQ(step.duration, absl::Milliseconds(10));
    all += step.duration;
  }
  EXPECT_EQ(all, absl::Milliseconds(200));
  EXPECT_EQ(sink->finished()->timings.total, absl::Milliseconds(200));
  EXPECT_EQ(sink->finished()->timings.time_to_first_token, absl::Milliseconds(10));
}

// A window's turn holds no more pages than one that waits for each token.
TEST(RunAheadTest, AWindowFitsItsBound) {
  HarnessOptions options = Options(true);
  options.engine.context_tokens = 4096;
  // 20 tokens, wherever they begin, and a page, beside the sinks' page.
  options.pages = 3 * 5;
  Harness harness(options);
  Request request = OnA(TokensRequest({5}, 600));
  request.session->spec_if_missing =
      kv::SessionSpec{.retention = {kv::RetentionPolicy::Kind::kSlidingWindow, 2, 20}};
  const auto sink = harness.Run(std::move(request));
  ASSERT_TRUE(sink->finished().has_value()) << sink->failed()->ToString();
  EXPECT_EQ(sink->tokens().size(), 600u);
  EXPECT_EQ(harness.scheduler().parks(), 0);
  EXPECT_GT(harness.backend().steps_ahead(), 400);
}

// A logit that is not finite ends one turn, whose next row is computed from nothing.
TEST(RunAheadTest, ABadLogitEndsItsTurnAlone) {
  Harness harness(Options(true));
  const auto logits = harness.backend().on_logits;
  harness.backend().on_logits = [&](int64_t position, uint64_t x, absl::Span<float> row) {
    logits(position, x, row);
    if (position == 30) row[7] = std::numeric_limits<float>::quiet_NaN();
  };
  const auto bad = harness.Submit(TokensRequest({5, 6}, 100));
  const auto good = harness.Submit(TokensRequest({5}, 25));
  harness.RunUntilIdle();
  EXPECT_EQ(bad->failed()->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(good->tokens().size(), 25u);
}

}  // namespace
}  // namespace tokend::engine
