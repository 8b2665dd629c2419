// Sessions that never end, and remember their newest tokens alone.
#include <malloc.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/scheduler.h"
#include "core/kv/session_store.h"
#include "gtest/gtest.h"
#include "tests/core/engine/harness.h"
#include "tests/core/kv/store_audit.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT

constexpr int64_t kLayers = 3, kPageTokens = 16, kSinks = 16, kWindow = 32;
constexpr int64_t kPages = kLayers * 64;
// Of the last positions' KV, and the sinks.
constexpr int64_t kReceptiveField = kLayers * (kWindow - 1) + 1 + kSinks;

HarnessOptions Options() {
  HarnessOptions options;
  options.pages = kPages;
  return options;
}

// What the process got from malloc; 0 where a sanitizer has its own.
int64_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

std::vector<int32_t> CameraTokens(int64_t frame) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < 16; ++i) {
    tokens.push_back(static_cast<int32_t>((frame * 7919 + i * 104'729 + frame * i) % kVocabulary));
  }
  return tokens;
}

class EndlessTest : public ::testing::Test {
 protected:
  EndlessTest() : harness_(Options()) {
    // The engine remembers turns for two minutes.
    harness_.SetStepTime(absl::Milliseconds(50), {});
  }

  void Create(const std::string& id, int64_t history) {
    const kv::RetentionPolicy policy = {kv::RetentionPolicy::Kind::kSlidingWindow, kSinks, kWindow};
    ASSERT_TRUE(harness_.store()
                    .CreateSession("p", id, {.retention = policy, .history_tokens = history})
                    .ok());
  }

  std::shared_ptr<RecordingSink> Run(const std::string& id, Request request) {
    request.session = OnSession(id);
    return harness_.Run(std::move(request));
  }

  kv::SessionInfo Info(const std::string& id) {
    return harness_.store().GetSession("p", id).value();
  }

  // Everything that must not grow.
  struct Memory {
    int64_t nodes = 0, pages = 0, versions = 0, history = 0, heap = 0;

    void Take(const Memory& other) {
      nodes = std::max(nodes, other.nodes);
      pages = std::max(pages, other.pages);
      versions = std::max(versions, other.versions);
      history = std::max(history, other.history);
      heap = std::max(heap, other.heap);
    }
  };
  Memory Measure(const std::string& id) {
    const kv::StoreSnapshot snapshot = harness_.store().Snapshot();
    const kv::SessionInfo info = Info(id);
    return {.nodes = kv::StoreAudit(&harness_.store()).nodes(),
            .pages = snapshot.pages.private_pages + snapshot.pages.shared,
            .versions = snapshot.versions,
            .history = info.tokens - info.first_position,
            .heap = HeapBytes()};
  }

  // Takes every page, so that no idle session keeps KV.
  void DropAllKv() {
    const int64_t tokens = kPages / kLayers * kPageTokens - 1;
    const auto turn = harness_.Run(TokensRequest(std::vector<int32_t>(tokens, 77), 0));
    ASSERT_TRUE(turn->finished().has_value());
  }

  // Checksums of the whole pages that the session's next step would read, by layer.
  std::vector<uint64_t> WindowBytes(const std::string& id) {
    const auto writer = harness_.store().Admit({.principal = "p", .session_id = id}).value();
    const auto branch = harness_.store().Checkout(writer.get(), {}).value();
    branch->Append({1, 2});
    branch->MatchPrefix();
    EXPECT_TRUE(branch->Prepare(1).ok());
    std::vector<uint64_t> bytes;
    for (const ops::LayerKv& layer : branch->layers()) {
      for (int32_t i = 0; i + 1 < layer.page_count; ++i) {
        bytes.push_back(harness_.backend().PageChecksum(layer.pages[i], kPageTokens));
      }
    }
    return bytes;
  }

  Harness harness_;
};

TEST_F(EndlessTest, AMillionTokensOfACamera) {
  constexpr int64_t kFrames = 1'000'000 / 16;
  ASSERT_NO_FATAL_FAILURE(Create("camera", 2048));
  Memory early, late;
  for (int64_t frame = 0; frame < kFrames; ++frame) {
    const auto turn = Run("camera", TokensRequest(CameraTokens(frame), 0));
    ASSERT_TRUE(turn->finished().has_value());
    ASSERT_EQ(turn->finished()->usage.recomputed_tokens, 0);
    if (frame % 16 != 0) continue;
    if (frame >= kFrames / 10 && frame < kFrames * 3 / 10) early.Take(Measure("camera"));
    if (frame >= kFrames * 8 / 10) late.Take(Measure("camera"));
  }
  EXPECT_EQ(Info("camera").tokens, 1'000'000);
  EXPECT_EQ(late.pages, early.pages);
  EXPECT_LE(late.pages, kLayers * (kSinks + kWindow + kPageTokens) / kPageTokens);
  EXPECT_EQ(late.versions, early.versions);
  EXPECT_LE(late.nodes, early.nodes);
  EXPECT_LE(late.history, 3 * 2048);
  EXPECT_GE(late.history, 2048);
  // Less than a byte a turn; a block of nodes more or less is chance.
  EXPECT_LE(late.heap, early.heap + 16384);
  EXPECT_LE(Info("camera").first_position, 1'000'000 - 2048);

  // With its KV dropped it goes on as its twin does, which kept it.
  ASSERT_TRUE(harness_.store().Fork("p", "camera", {}, "twin", {}).ok());
  const auto question = [&] { return TokensRequest(CameraTokens(kFrames), 8); };
  const auto want = Run("twin", question());
  const std::vector<uint64_t> bytes = WindowBytes("twin");
  EXPECT_EQ(want->finished()->usage.recomputed_tokens, 0);
  ASSERT_NO_FATAL_FAILURE(DropAllKv());
  EXPECT_EQ(Info("camera").resident_tokens, 0);
  const auto got = Run("camera", question());
  ASSERT_TRUE(got->finished().has_value());
  EXPECT_EQ(got->tokens(), want->tokens());
  EXPECT_EQ(got->finished()->usage.recomputed_tokens, kReceptiveField);
  EXPECT_EQ(WindowBytes("camera"), bytes);
  EXPECT_GE(bytes.size(), static_cast<size_t>(kLayers) * 3);
}

TEST_F(EndlessTest, ChatsPastTheWindowAlwaysGetAReply) {
  std::vector<std::vector<int32_t>> replies;
  for (const int64_t history : {0, 100}) {
    const std::string id = history == 0 ? "all" : "some";
    ASSERT_NO_FATAL_FAILURE(Create(id, history));
    int32_t input_tokens = 0;
    size_t most_messages = 0;
    for (int turn = 0; turn < 600; ++turn) {
      Request request =
          ChatRequest({{kv::Role::kUser, turn % 2 == 0 ? "And now?" : "What is it"}}, 6);
      request.stop.ignore_end_of_text = true;
      const auto reply = Run(id, std::move(request));
      ASSERT_TRUE(reply->finished().has_value()) << *reply->failed();
      const Finished finished = *reply->finished();
      EXPECT_EQ(reply->tokens().size(), 6u) << turn;
      // What was forgotten changes nothing.
      if (history == 0) replies.push_back(reply->tokens());
      EXPECT_EQ(reply->tokens(), replies[turn]);
      EXPECT_FALSE(finished.version.empty());
      EXPECT_EQ(finished.usage.recomputed_tokens, 0);
      // The template's start comes once, whatever was forgotten.
      if (turn > 0) input_tokens = std::max(input_tokens, finished.usage.input_tokens);
      const auto writer = harness_.store().Admit({.principal = "p", .session_id = id}).value();
      const auto branch = harness_.store().Checkout(writer.get(), {}).value();
      most_messages = std::max(most_messages, branch->conversation()->size());
    }
    EXPECT_LE(input_tokens, 60);
    if (history == 0) {
      EXPECT_EQ(most_messages, 1201u);
    } else {
      EXPECT_LE(most_messages, 400u);
    }
  }
}

}  // namespace
}  // namespace tokend::engine
