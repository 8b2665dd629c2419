// What a turn says depends on its tokens, policy and sampling alone: not on
// chunks, neighbours, caching, forks or rollbacks.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/engine/scheduler.h"
#include "gtest/gtest.h"
#include "tests/core/engine/determinism_backends.h"
#include "tests/core/engine/harness.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT

constexpr int kBaseTokens = 130;
constexpr int kInputTokens = 71;
#ifdef TOKEND_TEST_CUDA
constexpr int kOutputTokens = 12;  // a device that is stood in for takes its time
#else
constexpr int kOutputTokens = 40;
#endif

std::vector<int32_t> Tokens(int count, int salt) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(kFirstByte + (i * i + 7 * i + salt) % 256);
  return tokens;
}

constexpr kv::RetentionPolicy kFull;
[[maybe_unused]] constexpr kv::RetentionPolicy kWindow = {kv::RetentionPolicy::Kind::kSlidingWindow,
                                                          4, 48};
constexpr kv::RetentionPolicy kNarrow = {kv::RetentionPolicy::Kind::kSlidingWindow, 0, 17};
constexpr kv::RetentionPolicy kLayered = {kv::RetentionPolicy::Kind::kLayered, 4, 32, 1};
constexpr kv::RetentionPolicy kHeavy = {kv::RetentionPolicy::Kind::kHeavyHitters, 2, 32, 0, 1, 32};

enum class Model { kFake, kF32, kInt16, kInt8, kCuda, kCudaInt8 };

struct Case {
  Model model;
  kv::RetentionPolicy retention;
  std::vector<int64_t> local_windows = {0, 0, 0};
};

bool HasLocal(const Case& c) { return c.local_windows != std::vector<int64_t>{0, 0, 0}; }

class DeterminismTest : public ::testing::TestWithParam<Case> {
 protected:
  HarnessOptions Options(int chunk) {
    HarnessOptions options;
    options.engine.max_running = 32;
    options.engine.max_queued = 100;
    options.engine.prefill_chunk_tokens = chunk;
    options.engine.max_batch_tokens = 640;
    options.pages = 3 * 1024;
    options.local_windows = GetParam().local_windows;
    switch (GetParam().model) {
      case Model::kFake:
        break;
      case Model::kF32:
        UseCpu(base::Activations::kF32, base::KvDtype::kF32, &options);
        break;
      case Model::kInt16:
        UseCpu(base::Activations::kInt16, base::KvDtype::kF16, &options);
        break;
      case Model::kInt8:
        UseCpu(base::Activations::kInt8, base::KvDtype::kInt8, &options);
        break;
      case Model::kCuda:
        UseCuda(base::KvDtype::kF16, &options);
        break;
      case Model::kCudaInt8:
        UseCuda(base::KvDtype::kInt8, &options);
        break;
    }
    return options;
  }

  Request OnSessionOf(absl::string_view id, Request request) {
    request.session = OnSession(id);
    request.session->spec_if_missing.retention = GetParam().retention;
    return request;
  }

  Request Base(absl::string_view id) {
    return OnSessionOf(id, TokensRequest(Tokens(kBaseTokens, 1), 0));
  }

  Request Question(absl::string_view id) {
    Request request = OnSessionOf(id, TokensRequest(Tokens(kInputTokens, 2), kOutputTokens));
    request.sampling.temperature = 0.9f;
    request.sampling.top_k = 40;
    request.sampling.seed = 11;
    request.sampling.repetition_penalty = 1.2f;
    request.sampling.presence_penalty = 0.2f;
    return request;
  }

  // Other turns, with lengths, seeds and ends of their own.
  void AddNeighbours(Harness& harness, int count) {
    for (int i = 0; i < count; ++i) {
      Request request = TokensRequest(Tokens(5 + 17 * i % 200, 100 + i), 3 + i * 5 % 60);
      request.sampling.temperature = i % 3 == 0 ? 0 : 1;
      request.sampling.seed = i;
      request.sampling.frequency_penalty = i % 2 == 0 ? 0 : 0.5f;
      if (i % 4 == 1) request.input = TokenInput{Tokens(kBaseTokens, 1)};
      harness.Submit(std::move(request));
    }
  }

  // Every one, but where a device is stood in for by this machine.
  std::vector<int> Chunks() const {
    const bool cuda = GetParam().model == Model::kCuda || GetParam().model == Model::kCudaInt8;
    return cuda ? std::vector<int>{7} : std::vector<int>{1, 7, 64, 512};
  }

  // Tokens at least that must be computed again when all KV is gone: the receptive
  // field of the layers, or all of the base and the input.
  int64_t LeastField() const {
    const int64_t all = kBaseTokens + kInputTokens;
    int64_t field = 0;
    for (int layer = 0; layer < 3; ++layer) {
      const int64_t window =
          GetParam().retention.Mask(layer, GetParam().local_windows[layer]).window_tokens;
      field += window == 0 ? all : window - 1;
    }
    return std::min(all, field);
  }

  // Base in one turn, question in the next, alone, chunks of a whole input.
  std::vector<int32_t> Expected() {
    Harness harness(Options(0));
    harness.Run(Base("a"));
    return harness.Run(Question("a"))->tokens();
  }
};

TEST_P(DeterminismTest, ChunksAndNeighboursDoNotMatter) {
  const auto expected = Expected();
  ASSERT_EQ(expected.size(), static_cast<size_t>(kOutputTokens));
  for (const int chunk : {0, 1, 7, 64, 512}) {
    for (const int neighbours : {0, 1, 3, 31}) {
      Harness harness(Options(chunk));
      harness.Run(Base("a"));
      AddNeighbours(harness, neighbours / 2);
      const auto sink = harness.Submit(Question("a"));
      AddNeighbours(harness, neighbours - neighbours / 2);
      harness.RunUntilIdle();
      EXPECT_EQ(sink->tokens(), expected) << "chunk " << chunk << ", neighbours " << neighbours;
    }
  }
}

TEST_P(DeterminismTest, ColdCachedForkedAndRolledBackAreTheSame) {
  const auto expected = Expected();
  for (const int chunk : Chunks()) {
    Harness harness(Options(chunk));
    // Cold: base and question in one turn.
    auto all = Tokens(kBaseTokens, 1);
    for (const int32_t token : Tokens(kInputTokens, 2)) all.push_back(token);
    Request cold = Question("cold");
    cold.input = TokenInput{all};
    // The penalties and the draw see the same tokens at the same positions.
    EXPECT_EQ(harness.Run(cold)->tokens(), expected) << "cold, chunk " << chunk;
    // Cached by another session of the same caller.
    const auto cached = harness.Run([&] {
      Request request = cold;
      request.session->id = "cached";
      return request;
    }());
    EXPECT_EQ(cached->tokens(), expected);
    // Behind a window there may be nothing left that another session could use.
    if (GetParam().retention == kFull && !HasLocal(GetParam())) {
      EXPECT_GT(cached->finished()->usage.cached_tokens, 0);
    }
    // Forked from the version of the base.
    harness.Run(Base("a"));
    ASSERT_TRUE(harness.store().Fork("p", "a", std::nullopt, "fork", std::nullopt).ok());
    EXPECT_EQ(harness.Run(Question("fork"))->tokens(), expected);
    // Rolled back behind other turns.
    harness.Run(OnSessionOf("a", TokensRequest(Tokens(90, 3), 20)));
    ASSERT_TRUE(harness.store().Rollback("p", "a", 1, std::nullopt).ok());
    EXPECT_EQ(harness.Run(Question("a"))->tokens(), expected);
    // Edited: the question again in the place of the answer.
    Request edit = Question("a");
    edit.session->from_position = kBaseTokens;
    EXPECT_EQ(harness.Run(std::move(edit))->tokens(), expected);
  }
}

TEST_P(DeterminismTest, WhatWasDroppedIsComputedAgainAlike) {
  const auto expected = Expected();
  // The other turn needs as many pages in local layers as in global ones, if it
  // computes all at once.
  HarnessOptions options = Options(HasLocal(GetParam()) ? 512 : 64);
  options.pages = 3 * 24;
  Harness harness(options);
  harness.Run(Base("a"));
  // Needs all pages, so that none of the session's are left.
  harness.Run(TokensRequest(Tokens(23 * 16, 4), 2));
  const auto sink = harness.Run(Question("a"));
  EXPECT_EQ(sink->tokens(), expected);
  const int64_t recomputed = sink->finished()->usage.recomputed_tokens;
  EXPECT_GT(recomputed, 0);
  // The receptive field of the layers, with the pages around it and the sinks'.
  if (LeastField() < kBaseTokens) {
    EXPECT_LE(recomputed, LeastField() + 3 * 16);
  }
}

TEST_P(DeterminismTest, ManyTurnsBehindARollbackAreTheSame) {
  Harness harness(Options(64));
  const auto say = [&](int turn) {
    Request request = OnSessionOf("a", TokensRequest(Tokens(5 + turn % 3, turn), 8));
    return harness.Run(std::move(request))->tokens();
  };
  std::vector<std::vector<int32_t>> first;
  for (int turn = 0; turn < 16; ++turn) first.push_back(say(turn));
  ASSERT_TRUE(harness.store().Rollback("p", "a", 2, std::nullopt).ok());
  for (int turn = 2; turn < 16; ++turn) EXPECT_EQ(say(turn), first[turn]) << turn;
}

TEST_P(DeterminismTest, APausedTurnGoesOnAlike) {
  const auto expected = Expected();
  Harness harness(Options(7));
  harness.Run(Base("a"));
  const auto sink = harness.Submit(Question("a"));
  AddNeighbours(harness, 5);
  for (int i = 0; !sink->ended(); ++i) {
    sink->SetWritable(i % 3 == 0);
    harness.Step();
  }
  harness.RunUntilIdle();
  EXPECT_EQ(sink->tokens(), expected);
}

// Others take all of the pool while it is parked; then it computes all again.
TEST_P(DeterminismTest, AParkedTurnGoesOnAlike) {
  const auto expected = Expected();
  for (const int chunk : Chunks()) {
    HarnessOptions options = Options(chunk);
    options.pages = HasLocal(GetParam()) ? 44 : 3 * 24;
    Harness harness(options);
    harness.Run(Base("a"));
    const auto sink = harness.Submit(Question("a"));
    int salt = 0;
    for (const size_t tokens : {1, 2, kOutputTokens * 2 / 5, kOutputTokens * 7 / 8}) {
      while (!sink->ended() && sink->tokens().size() < tokens) harness.Step();
      sink->SetWritable(false);
      EXPECT_TRUE(harness.Run(TokensRequest(Tokens(23 * 16, ++salt + 10), 2))->finished());
      sink->SetWritable(true);
    }
    harness.RunUntilIdle();
    EXPECT_EQ(sink->tokens(), expected) << "chunk " << chunk;
    if (HasLocal(GetParam())) {
      EXPECT_GT(harness.scheduler().parks(), 0);
      continue;
    }
    EXPECT_EQ(harness.scheduler().parks(), 4);
    EXPECT_GE(sink->finished()->usage.recomputed_tokens, 4 * LeastField());
  }
}

// They park each other, while they decode and before.
TEST_P(DeterminismTest, ManyInAPoolForFewAreTheSame) {
  const auto expected = Expected();
  int64_t parks = 0;
  for (const int chunk : Chunks()) {
    HarnessOptions options = Options(chunk);
    options.pages =
        3 *
        (GetParam().retention.kind == kLayered.kind || GetParam().retention == kHeavy ? 20 : 22);
    Harness harness(options);
    harness.Run(Base("a"));
    AddNeighbours(harness, 4);
    const auto sink = harness.Submit(Question("a"));
    AddNeighbours(harness, 27);
    harness.RunUntilIdle();
    EXPECT_EQ(sink->tokens(), expected) << "chunk " << chunk;
    parks += harness.scheduler().parks();
  }
  if (!HasLocal(GetParam())) {
    EXPECT_GT(parks, 0);
  }
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  constexpr const char* kModels[] = {"Fake", "F32", "Int16", "Int8", "Cuda", "CudaInt8"};
  constexpr const char* kKinds[] = {"Full", "Window", "Layered", "Heavy"};
  const kv::RetentionPolicy& retention = info.param.retention;
  return absl::StrCat(kModels[static_cast<int>(info.param.model)],
                      kKinds[static_cast<int>(retention.kind)],
                      retention.window_tokens == 0 ? "" : absl::StrCat(retention.window_tokens),
                      HasLocal(info.param) ? "Local" : "");
}

#ifdef TOKEND_TEST_CUDA
INSTANTIATE_TEST_SUITE_P(Cases, DeterminismTest,
                         ::testing::Values(Case{Model::kCuda, kFull},
                                           Case{Model::kCudaInt8, kLayered},
                                           Case{Model::kCuda, kNarrow, {20, 0, 20}}),
                         CaseName);
#else
INSTANTIATE_TEST_SUITE_P(
    Cases, DeterminismTest,
    ::testing::Values(Case{Model::kFake, kFull}, Case{Model::kFake, kWindow},
                      Case{Model::kFake, kNarrow}, Case{Model::kFake, kLayered},
                      Case{Model::kFake, kHeavy}, Case{Model::kF32, kHeavy},
                      Case{Model::kInt16, kHeavy}, Case{Model::kFake, kWindow, {60, 0, 60}},
                      Case{Model::kFake, kLayered, {40, 0, 40}}, Case{Model::kF32, kFull},
                      Case{Model::kF32, kNarrow}, Case{Model::kF32, kLayered},
                      Case{Model::kF32, kFull, {20, 0, 20}}, Case{Model::kInt16, kFull},
                      Case{Model::kInt16, kWindow}, Case{Model::kInt16, kWindow, {0, 60, 60}},
                      Case{Model::kInt8, kFull}, Case{Model::kInt8, kNarrow}),
    CaseName);
#endif

}  // namespace
}  // namespace tokend::engine
