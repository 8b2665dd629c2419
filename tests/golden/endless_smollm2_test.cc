// A stream far longer than the context on SmolLM2-135M: it keeps to its pages, and
// when its KV was dropped it goes on from the receptive field with the same bytes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/observer.h"
#include "core/cpu/cpu_backend.h"
#include "core/gguf/file.h"
#include "core/kv/session_store.h"
#include "core/model/model.h"
#include "gtest/gtest.h"
#include "tests/support/test_files.h"

namespace tokend {
namespace {

constexpr int kPageTokens = 16;
constexpr int64_t kSinks = 4, kWindow = 32;
constexpr int64_t kTurns = 100, kTurnTokens = 500;
constexpr int64_t kPagesPerLayer = 64;

int64_t Pages(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

std::vector<int32_t> TurnTokens(int64_t turn, int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>((turn * 7919 + i * 104'729 + i * i) % 49'000 + 20));
  }
  return tokens;
}

// Of this process.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

class EndlessSmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = testing::SmolLm2File();
    if (!path.has_value()) GTEST_SKIP() << "no SmolLM2 file; ./dev model smollm2 fetches it";
    file_ = gguf::File::Open(*path).value();
    model_ = model::Model::Load(*file_, {}).value();
    backend_ = cpu::CpuBackend::Create(model_->plan(), {.threads = 2}).value();
    layers_ = static_cast<int>(model_->plan().layers.size());
    ASSERT_TRUE(backend_->AllocateArena(layers_ * kPagesPerLayer).ok());
    kv::StoreOptions options;
    options.layers = layers_;
    options.pages = layers_ * kPagesPerLayer;
    options.page_tokens = kPageTokens;
    options.context_tokens = model_->plan().context_tokens;
    options.max_versions = 4;
    store_ =
        kv::SessionStore::Create(options, backend_.get(), base::RealClock(), base::NullObserver())
            .value();
    const kv::RetentionPolicy policy = {kv::RetentionPolicy::Kind::kSlidingWindow, kSinks, kWindow};
    ASSERT_TRUE(store_->CreateSession("", "camera", {.retention = policy}).ok());
  }

  std::pair<std::unique_ptr<kv::Writer>, std::unique_ptr<kv::Branch>> Start(
      const std::vector<int32_t>& input) {
    auto writer = store_->Admit({.session_id = "camera"}).value();
    auto branch = store_->Checkout(writer.get(), {}).value();
    branch->Append(input);
    branch->MatchPrefix();
    return {std::move(writer), std::move(branch)};
  }

  // Steps of at most `chunk` rows until `end` positions are computed. The logits of
  // the last row, if it has any.
  std::vector<float> Compute(kv::Branch* branch, int64_t chunk, int64_t end) {
    std::vector<float> logits;
    while (branch->computed() < end) {
      const int64_t at = branch->computed();
      const int64_t rows = std::min({chunk, end - at, branch->step_rows()});
      EXPECT_TRUE(branch->Prepare(rows).ok());
      for (const ops::LayerKv& layer : branch->layers()) {
        most_pages_ = std::max<int64_t>(most_pages_, layer.page_count);
      }
      std::vector<int32_t> tokens;
      branch->ReadTokens(at, at + rows, &tokens);
      const ops::StepSequence sequence = {
          .rows = static_cast<int32_t>(rows), .position = at, .layers = branch->layers()};
      const auto last = static_cast<int32_t>(rows - 1);
      const bool wanted = at + rows == branch->tokens();
      auto output = backend_->Forward({.tokens = tokens,
                                       .sequences = absl::MakeConstSpan(&sequence, 1),
                                       .logit_rows = absl::MakeConstSpan(&last, wanted ? 1 : 0)});
      EXPECT_TRUE(output.ok()) << output.status();
      logits.assign(output->logits.begin(), output->logits.end());
      branch->Advance(rows);
    }
    return logits;
  }

  // Keys and values of all pages that the next step would read in every layer, but
  // for the last, which it may write.
  std::vector<std::string> WindowBytes(kv::Branch* branch) {
    EXPECT_TRUE(branch->Prepare(1).ok());
    const cpu::KvArena& arena = *backend_->arena();
    const int64_t half = arena.layout().half_page_bytes();
    std::vector<std::string> bytes;
    for (const ops::LayerKv& layer : branch->layers()) {
      for (int32_t i = 0; i + 1 < layer.page_count; ++i) {
        const int64_t at = static_cast<int64_t>(layer.pages[i]) * half;
        bytes.emplace_back(reinterpret_cast<const char*>(arena.keys() + at), half);
        bytes.emplace_back(reinterpret_cast<const char*>(arena.values() + at), half);
      }
    }
    return bytes;
  }

  // Takes every page and fills it with what no one may read.
  void DropAllKv() {
    auto branch = store_->CheckoutEphemeral("another");
    branch->Append(TurnTokens(1, kPagesPerLayer * kPageTokens));
    branch->MatchPrefix();
    ASSERT_TRUE(branch->Prepare(kPagesPerLayer * kPageTokens).ok());
    cpu::KvArena* arena = backend_->arena();
    const auto size = static_cast<size_t>(arena->pages() * arena->layout().half_page_bytes());
    std::memset(arena->keys(), 0xff, size);
    std::memset(arena->values(), 0xff, size);
  }

  std::unique_ptr<gguf::File> file_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<cpu::CpuBackend> backend_;
  std::unique_ptr<kv::SessionStore> store_;
  int layers_ = 0;
  int64_t most_pages_ = 0;
};

TEST_F(EndlessSmolLm2Test, FiftyThousandTokensAndTheSameBytesAfterADrop) {
  int64_t early = 0;
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    auto [writer, branch] = Start(TurnTokens(turn, kTurnTokens));
    Compute(branch.get(), 250, branch->tokens());
    const int64_t tokens = branch->tokens();
    ASSERT_TRUE(store_->Commit(writer.get(), std::move(branch), {.tokens = tokens}).ok());
    writer.reset();
    store_->Maintain();
    if (turn == kTurns / 4) early = ResidentBytes();
  }
  EXPECT_LE(most_pages_, Pages(kSinks) + Pages(kWindow) + 1 + Pages(250));
  EXPECT_LT(ResidentBytes(), early + (8 << 20));
  EXPECT_EQ(store_->GetSession("", "camera")->tokens, kTurns * kTurnTokens);

  const std::vector<int32_t> input = TurnTokens(kTurns, 7);
  std::vector<std::string> bytes;
  std::vector<float> logits;
  {
    auto [writer, branch] = Start(input);
    EXPECT_EQ(branch->tokens() - branch->computed(), 7);
    bytes = WindowBytes(branch.get());
    logits = Compute(branch.get(), 250, branch->tokens());
  }
  store_->Maintain();
  ASSERT_NO_FATAL_FAILURE(DropAllKv());
  store_->Maintain();
  EXPECT_EQ(store_->GetSession("", "camera")->resident_tokens, 0);

  auto [writer, branch] = Start(input);
  Compute(branch.get(), 250, kTurns * kTurnTokens);
  EXPECT_EQ(WindowBytes(branch.get()), bytes);
  EXPECT_EQ(Compute(branch.get(), 250, branch->tokens()), logits);
  const int64_t field = layers_ * (kWindow - 1);
  std::printf("recomputed %lld of %lld tokens, receptive field %lld\n",
              static_cast<long long>(branch->stats().recomputed_tokens),
              static_cast<long long>(kTurns * kTurnTokens), static_cast<long long>(field));
  EXPECT_GE(branch->stats().recomputed_tokens, field);
  EXPECT_LE(branch->stats().recomputed_tokens, field + 3 * kPageTokens);
}

}  // namespace
}  // namespace tokend
