// The way of a turn: events, usage, timings, sessions.
#include "core/engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/sampling/sampler_ref.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/engine/harness.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT
using base::ErrorReason;
using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<int32_t> Ascending(int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(kFirstByte + i % 200);
  return tokens;
}

// The greedy continuation by the fake model's reference.
std::vector<int32_t> GreedyReference(std::vector<int32_t> tokens, int count) {
  FakeReference model(kVocabulary, std::vector<ops::AttentionMask>(3));
  model.Append(tokens);
  std::vector<int32_t> output;
  for (int i = 0; i < count; ++i) {
    const auto logits = model.Logits(model.size() - 1);
    ops::SamplingParams params;
    params.temperature = 0;
    output.push_back(sampling::SampleRef(logits, params, {}, {}, 0));
    model.Append({output.back()});
  }
  return output;
}

TEST(SchedulerTest, ATurnWithoutASession) {
  Harness harness;
  const auto sink = harness.Run(TokensRequest(Ascending(50), 20));
  ASSERT_TRUE(sink->finished().has_value());
  EXPECT_EQ(sink->tokens(), GreedyReference(Ascending(50), 20));
  EXPECT_EQ(sink->started()->output_position, 50);
  EXPECT_EQ(sink->started()->base_version, "");
  const Finished finished = *sink->finished();
  EXPECT_EQ(finished.reason, kv::FinishReason::kLength);
  EXPECT_EQ(finished.version, "");
  EXPECT_EQ(finished.usage.base_tokens, 0);
  EXPECT_EQ(finished.usage.input_tokens, 50);
  EXPECT_EQ(finished.usage.computed_tokens, 50);
  EXPECT_EQ(finished.usage.cached_tokens, 0);
  EXPECT_EQ(finished.usage.output_tokens, 20);
  const auto counts = harness.counts();
  EXPECT_THAT(counts.ends, ElementsAre(Pair("length", 1)));
  EXPECT_EQ(counts.prompts, 1);
  EXPECT_EQ(counts.computed, 50);
  EXPECT_EQ(counts.generated, 20);
  EXPECT_EQ(counts.first_tokens, 1);
  EXPECT_EQ(counts.inter_tokens, 19);
  EXPECT_EQ(counts.queues, 1);
  EXPECT_EQ(harness.store().Snapshot().pages.private_pages, 0);
}

TEST(SchedulerTest, TheSnapshotSaysHowManyActivationsWereCut) {
  Harness harness;
  EXPECT_EQ(harness.scheduler().Snapshot().saturated_activations, 0);
  harness.backend().saturated_activations = 7;
  harness.Run(TokensRequest(Ascending(5), 2));
  EXPECT_EQ(harness.scheduler().Snapshot().saturated_activations, 7);
}

TEST(SchedulerTest, TextIsTokenisedAndBosIsNotAddedWhereTheModelUsesNone) {
  Harness harness;
  const auto sink = harness.Run(TextRequest("in the end", 1));
  EXPECT_EQ(sink->finished()->usage.input_tokens,
            static_cast<int>(TinyTokenizer().Encode("in the end").value().size()));
}

TEST(SchedulerTest, ASessionContinuesAndIsCached) {
  Harness harness;
  Request first = TokensRequest(Ascending(40), 10);
  first.session = OnSession("a");
  first.id = "first";
  const auto one = harness.Run(std::move(first));
  EXPECT_EQ(one->started()->base_version, "");
  EXPECT_EQ(one->finished()->version, "sessions/a/versions/1");

  auto all = Ascending(40);
  const auto output = one->tokens();
  all.insert(all.end(), output.begin(), output.end());
  EXPECT_EQ(harness.ReadSession("a"), all);

  Request second = TokensRequest(ByteTokens("xyz"), 5);
  second.session = OnSession("a");
  const auto two = harness.Run(std::move(second));
  EXPECT_EQ(two->started()->base_version, "sessions/a/versions/1");
  EXPECT_EQ(two->started()->output_position, 53);
  EXPECT_EQ(two->finished()->version, "sessions/a/versions/2");
  const Usage usage = two->finished()->usage;
  EXPECT_EQ(usage.base_tokens, 50);
  EXPECT_EQ(usage.input_tokens, 3);
  // The last token drawn has no KV yet.
  EXPECT_EQ(usage.cached_tokens, 49);
  EXPECT_EQ(usage.computed_tokens, 4);
  for (const int32_t token : ByteTokens("xyz")) all.push_back(token);
  EXPECT_EQ(two->tokens(), GreedyReference(all, 5));

  const auto versions = harness.store().ListVersions("p", "a", std::nullopt, 10).value();
  ASSERT_EQ(versions.size(), 2u);
  EXPECT_EQ(versions[1].request_id, "first");
  EXPECT_EQ(versions[1].reason, kv::FinishReason::kLength);
  EXPECT_EQ(versions[1].tokens, 50);
}

TEST(SchedulerTest, NoOutputComputesAndCommitsTheInputAlone) {
  Harness harness;
  Request request = TokensRequest(Ascending(33), 0);
  request.session = OnSession("a");
  const auto sink = harness.Run(std::move(request));
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kLength);
  EXPECT_EQ(sink->finished()->usage.output_tokens, 0);
  EXPECT_EQ(sink->finished()->usage.computed_tokens, 33);
  EXPECT_TRUE(sink->deltas().empty());
  EXPECT_EQ(harness.ReadSession("a"), Ascending(33));
  EXPECT_EQ(harness.counts().first_tokens, 0);
  // An empty input then goes on from there.
  Request next = TokensRequest({}, 4);
  next.session = OnSession("a");
  const auto output = harness.Run(std::move(next));
  EXPECT_EQ(output->tokens(), GreedyReference(Ascending(33), 4));
}

TEST(SchedulerTest, NothingToGoOnFromIsAnError) {
  Harness harness;
  const auto sink = harness.Run(TokensRequest({}, 4));
  ASSERT_TRUE(sink->failed().has_value());
  EXPECT_EQ(sink->failed()->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(sink->started().has_value());
}

TEST(SchedulerTest, BadInputIsRefusedByName) {
  Harness harness;
  const auto bad = harness.TrySubmit(TokensRequest({5, kVocabulary}, 1));
  EXPECT_EQ(base::GetErrorReason(bad), ErrorReason::kInvalidField);
  EXPECT_NE(bad.message().find("token_ids[1]"), absl::string_view::npos) << bad;
  EXPECT_FALSE(harness.TrySubmit(TokensRequest({-1}, 1)).ok());
  Request biased = TokensRequest({5}, 1);
  biased.sampling.logit_bias = {{kVocabulary, 1}};
  EXPECT_EQ(base::GetErrorReason(harness.TrySubmit(std::move(biased))), ErrorReason::kInvalidField);
  EXPECT_FALSE(harness.TrySubmit(ChatRequest({}, 1)).ok());
  Request missing = TokensRequest({5}, 1);
  missing.session = OnSession("nobody");
  missing.session->allow_missing = false;
  EXPECT_EQ(harness.TrySubmit(std::move(missing)).code(), absl::StatusCode::kNotFound);
  // Each was counted once, and left nothing behind.
  EXPECT_THAT(harness.counts().ends,
              ElementsAre(Pair("invalid_field", 4), Pair("no_such_resource", 1)));
  EXPECT_EQ(harness.scheduler().Snapshot().waiting, 0);
}

TEST(SchedulerTest, CommitNeverLeavesTheSessionAsItWas) {
  Harness harness;
  Request request = TokensRequest(Ascending(20), 5);
  request.session = OnSession("a");
  harness.Run(request);
  const auto before = harness.ReadSession("a");
  request.session->commit = CommitMode::kNever;
  const auto sink = harness.Run(std::move(request));
  EXPECT_EQ(sink->finished()->version, "");
  EXPECT_EQ(harness.ReadSession("a"), before);
}

TEST(SchedulerTest, AnEditReplacesWhatFollows) {
  Harness harness;
  Request request = TokensRequest(Ascending(40), 5);
  request.session = OnSession("a");
  harness.Run(std::move(request));
  Request edit = TokensRequest(ByteTokens("Q"), 3);
  edit.session = OnSession("a");
  edit.session->from_position = 37;
  const auto sink = harness.Run(std::move(edit));
  auto all = Ascending(37);
  all.push_back(ByteTokens("Q")[0]);
  EXPECT_EQ(sink->tokens(), GreedyReference(all, 3));
  EXPECT_EQ(sink->finished()->usage.base_tokens, 37);
  Request beyond = TokensRequest(ByteTokens("Q"), 3);
  beyond.session = OnSession("a");
  beyond.session->from_position = 1000;
  const auto failed = harness.Run(std::move(beyond));
  EXPECT_EQ(base::GetErrorReason(*failed->failed()), ErrorReason::kBadPosition);
  EXPECT_EQ(harness.ReadSession("a").size(), 41u);
}

TEST(SchedulerTest, ExpectedVersionIsCheckedAtTheStart) {
  Harness harness;
  Request request = TokensRequest(Ascending(20), 5);
  request.session = OnSession("a");
  request.session->expected_version = 3;
  const auto sink = harness.Run(std::move(request));
  EXPECT_EQ(base::GetErrorReason(*sink->failed()), ErrorReason::kVersionMismatch);
  EXPECT_THAT(harness.counts().ends, ElementsAre(Pair("version_mismatch", 1)));
}

TEST(SchedulerTest, SeedsMakeOutputsRepeat) {
  Harness harness;
  Request request = TokensRequest(Ascending(20), 30);
  request.sampling.temperature = 1.5f;
  request.sampling.seed = 7;
  const auto sevens = harness.Run(request);
  EXPECT_EQ(sevens->started()->seed, 7u);
  EXPECT_EQ(harness.Run(request)->tokens(), sevens->tokens());
  request.sampling.seed = 8;
  EXPECT_NE(harness.Run(request)->tokens(), sevens->tokens());
}

TEST(SchedulerTest, PenaltiesSeeBaseInputAndOutput) {
  Harness harness;
  Request base = TokensRequest(Ascending(30), 0);
  base.session = OnSession("a");
  harness.Run(std::move(base));
  Request request = TokensRequest(ByteTokens("abc"), 40);
  request.session = OnSession("a");
  request.sampling.temperature = 0.7f;
  request.sampling.seed = 3;
  request.sampling.repetition_penalty = 1.7f;
  request.sampling.frequency_penalty = 0.4f;
  request.sampling.presence_penalty = 0.3f;
  const auto sink = harness.Run(request);
  auto context = Ascending(30);
  for (const int32_t token : ByteTokens("abc")) context.push_back(token);
  FakeReference model(kVocabulary, std::vector<ops::AttentionMask>(3));
  model.Append(context);
  std::vector<int32_t> output;
  for (int i = 0; i < 40; ++i) {
    const int64_t position = model.size();
    output.push_back(sampling::SampleRef(model.Logits(position - 1), request.sampling, context,
                                         output, position));
    model.Append({output.back()});
  }
  EXPECT_EQ(sink->tokens(), output);
}

TEST(SchedulerTest, LogprobsAreOfTheRawLogits) {
  Harness harness;
  Request request = TokensRequest(Ascending(20), 3);
  request.top_logprobs = 4;
  request.sampling.logit_bias = {{kFirstByte + 7, 100}};
  const auto sink = harness.Run(std::move(request));
  const auto logprobs = sink->logprobs();
  ASSERT_EQ(logprobs.size(), 3u);
  FakeReference model(kVocabulary, std::vector<ops::AttentionMask>(3));
  model.Append(Ascending(20));
  for (const TokenLogprob& got : logprobs) {
    const auto want = sampling::LogProbabilitiesRef(model.Logits(model.size() - 1));
    EXPECT_EQ(got.token_id, kFirstByte + 7);
    EXPECT_NEAR(got.logprob, want[got.token_id], 1e-5);
    ASSERT_EQ(got.top.size(), 4u);
    for (const TopLogprob& top : got.top) EXPECT_NEAR(top.logprob, want[top.token_id], 1e-5);
    EXPECT_GE(got.top[0].logprob, got.top[1].logprob);
    model.Append({got.token_id});
  }
}

class DrawingTest : public ::testing::TestWithParam<bool> {
 protected:
  static HarnessOptions Options(bool draws_tokens) {
    HarnessOptions options;
    options.backend.draws_tokens = draws_tokens;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(OnTheBackend, DrawingTest, ::testing::Bool());

// Where every turn of a step draws from its logits alone, a backend that can draws.
TEST(SchedulerTest, ItDoesNotMatterWhoDraws) {
  std::vector<std::vector<int32_t>> tokens[2];
  for (const bool draws : {false, true}) {
    HarnessOptions options;
    options.backend.draws_tokens = draws;
    Harness harness(options);
    int drawn = 0, told = 0;
    harness.backend().on_forward =
        [&, step = harness.backend().on_forward](const ops::StepBatch& batch) {
          if (!batch.logit_rows.empty()) ++(batch.draws.empty() ? told : drawn);
          return step ? step(batch) : absl::OkStatus();
        };
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 12; ++i) {
      Request request = TokensRequest(Ascending(3 + i), 4 + i);
      request.sampling.temperature = i % 4 == 0 ? 0 : 0.5f + static_cast<float>(i) / 8;
      request.sampling.seed = 100 + i;
      if (i % 3 == 1) request.sampling.top_k = 0;
      if (i == 5) request.sampling.frequency_penalty = 0.5f;
      if (i == 6) request.sampling.logit_bias = {{kFirstByte, 3.0f}};
      if (i == 7) request.top_logprobs = 2;
      sinks.push_back(harness.Submit(std::move(request)));
    }
    harness.RunUntilIdle();
    for (const auto& sink : sinks) tokens[draws].push_back(sink->tokens());
    EXPECT_GT(told, 0);
    EXPECT_EQ(drawn > 0, draws);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

TEST_P(DrawingTest, BadLogitsEndOneRequestOnly) {
  Harness harness(Options(GetParam()));
  auto good = harness.Submit(TokensRequest(Ascending(20), 10));
  Request request = TokensRequest(Ascending(60), 10);
  request.session = OnSession("a");
  auto bad = harness.Submit(std::move(request));
  harness.backend().on_logits = [](int64_t position, uint64_t, absl::Span<float> logits) {
    if (position == 63) logits[9] = std::numeric_limits<float>::quiet_NaN();
  };
  harness.RunUntilIdle();
  EXPECT_EQ(good->tokens(), GreedyReference(Ascending(20), 10));
  ASSERT_TRUE(bad->failed().has_value());
  EXPECT_EQ(base::GetErrorReason(*bad->failed()), ErrorReason::kRequestFailed);
  EXPECT_EQ(bad->failed()->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(bad->tokens().size(), 4u);
  EXPECT_THAT(harness.counts().ends, ElementsAre(Pair("length", 1), Pair("request_failed", 1)));
  EXPECT_FALSE(harness.store().GetSession("p", "a").ok());
}

TEST(SchedulerTest, TimingsFollowTheClock) {
  HarnessOptions options;
  options.engine.max_running = 1;
  Harness harness(options);
  harness.SetStepTime(absl::Milliseconds(10), absl::ZeroDuration());
  const auto one = harness.Submit(TokensRequest(Ascending(10), 5));
  const auto two = harness.Submit(TokensRequest(Ascending(11), 3));
  harness.RunUntilIdle();
  const Timings first = one->finished()->timings;
  EXPECT_EQ(first.queue, absl::ZeroDuration());
  EXPECT_EQ(first.prefill, absl::Milliseconds(10));
  EXPECT_EQ(first.decode, absl::Milliseconds(40));
  EXPECT_EQ(first.time_to_first_token, absl::Milliseconds(10));
  const Timings second = two->finished()->timings;
  EXPECT_EQ(second.queue, absl::Milliseconds(50));
  EXPECT_EQ(second.time_to_first_token, absl::Milliseconds(60));
  EXPECT_EQ(second.total, absl::Milliseconds(80));
}

TEST(SchedulerTest, LongPromptsDoNotHoldUpDecoding) {
  Harness harness;
  harness.SetStepTime(absl::Milliseconds(5), absl::Milliseconds(1));
  const auto decoding = harness.Submit(TokensRequest(Ascending(10), 400));
  harness.Step(20);
  const auto prompt = harness.Submit(TokensRequest(Ascending(700), 1));
  size_t steps = harness.counts().steps.size();
  while (!prompt->ended()) harness.Step();
  const auto reports = harness.counts().steps;
  absl::Duration longest;
  for (; steps < reports.size(); ++steps) {
    EXPECT_EQ(reports[steps].decode_tokens, 1);
    longest = std::max(longest, reports[steps].duration);
  }
  EXPECT_LE(longest, absl::Milliseconds(50));
  EXPECT_GE(longest, absl::Milliseconds(45));
  EXPECT_LT(decoding->tokens().size(), 60u);
}

TEST(SchedulerTest, SnapshotCountsAndRates) {
  HarnessOptions options;
  options.engine.max_running = 2;
  Harness harness(options);
  harness.SetStepTime(absl::Milliseconds(10), absl::ZeroDuration());
  for (int i = 0; i < 5; ++i) harness.Submit(TokensRequest(Ascending(100), 50));
  EXPECT_EQ(harness.scheduler().Snapshot().waiting, 5);
  harness.Step(2);
  EngineSnapshot snapshot = harness.scheduler().Snapshot();
  EXPECT_EQ(snapshot.running, 2);
  EXPECT_EQ(snapshot.waiting, 3);
  harness.RunUntilIdle();
  snapshot = harness.scheduler().Snapshot();
  EXPECT_EQ(snapshot.running + snapshot.waiting, 0);
  EXPECT_GT(snapshot.decode_tokens_per_second, 0);
  EXPECT_GT(snapshot.prefill_tokens_per_second, 0);
  const auto counts = harness.counts();
  int64_t prefill = 0;
  for (const base::StepReport& step : counts.steps) prefill += step.prefill_tokens;
  EXPECT_EQ(prefill, counts.computed);
  EXPECT_EQ(counts.computed + counts.cached, 500);
  EXPECT_EQ(counts.generated, 250);
}

}  // namespace
}  // namespace tokend::engine
