// A stream far longer than its window: bounded pages, the same work in each turn,
// and what the dense reference says.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/kv/session_store.h"
#include "core/ops/reference_model.h"
#include "gtest/gtest.h"
#include "tests/core/cpu/backend_rig.h"
#include "tests/core/kv/store_audit.h"
#include "tests/support/compare.h"
#include "tests/support/shadow_tags.h"

namespace tokend::cpu {
namespace {

constexpr int kPageTokens = 16;
constexpr int64_t kSinks = 4, kWindow = 256;
constexpr int64_t kTurns = 100, kTurnTokens = 500, kChunk = 250;

int64_t Pages(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

testing::RandomModelOptions Tiny() {
  testing::RandomModelOptions options;
  options.layers = 2;
  options.width = options.ffn_width = 32;
  options.vocabulary_size = 64;
  options.heads = 2;
  options.kv_heads = 1;
  return options;
}

// What a turn took of the pool and of the store.
struct Work {
  int64_t most_pages = 0;  // of a layer in a step
  int64_t pages = 0;       // in the tables of its steps
  int64_t touched = 0;     // nodes
};

class EndlessTest : public ::testing::TestWithParam<std::vector<int64_t>> {
 protected:
  EndlessTest() : model_(Tiny()) {
    backend_ = CpuBackend::Create(model_.plan(), F32Options()).value();
    tags_ = std::make_unique<testing::ShadowTags>(backend_.get(), kPageTokens,
                                                  [this](base::PageId page) { Poison(page); });
    EXPECT_TRUE(tags_->AllocateArena(2 * 64).ok());
    for (int32_t page = 0; page < 2 * 64; ++page) Poison(static_cast<base::PageId>(page));
    kv::StoreOptions options;
    options.layers = 2;
    options.pages = 2 * 64;
    options.page_tokens = kPageTokens;
    options.context_tokens = 1024;
    options.local_windows = GetParam();
    options.max_versions = 2;
    options.hooks = tags_.get();
    store_ = kv::SessionStore::Create(options, tags_.get(), base::RealClock(), base::NullObserver())
                 .value();
    EXPECT_TRUE(store_->CreateSession("", "camera", {.retention = policy_}).ok());
  }

  void Poison(base::PageId page) {
    KvArena* arena = backend_->arena();
    const int64_t half = arena->layout().half_page_bytes();
    std::memset(arena->keys() + static_cast<int64_t>(page) * half, 0xff, half);
    std::memset(arena->values() + static_cast<int64_t>(page) * half, 0xff, half);
  }

  // A prefill of most of the turn, then its last tokens one by one, as decoding
  // does. Keeps the logits of the positions in `kept`.
  Work Turn(absl::Span<const int32_t> input) {
    auto writer = store_->Admit({.session_id = "camera"}).value();
    auto branch = store_->Checkout(writer.get(), {}).value();
    branch->Append(input);
    branch->MatchPrefix();
    const int64_t end = branch->tokens();
    EXPECT_EQ(end - branch->computed(), kTurnTokens);
    Work work;
    const int64_t before = kv::StoreAudit(store_.get()).touched();
    while (branch->computed() < end) {
      const int64_t left = end - branch->computed();
      Step(branch.get(), left > 20 ? std::min(kChunk, left - 20) : 1, &work);
    }
    EXPECT_TRUE(store_->Commit(writer.get(), std::move(branch), {.tokens = end}).ok());
    writer.reset();
    store_->Maintain();
    work.touched = kv::StoreAudit(store_.get()).touched() - before;
    return work;
  }

  void Step(kv::Branch* branch, int64_t rows, Work* work) {
    const int64_t at = branch->computed();
    ASSERT_TRUE(branch->Prepare(rows).ok());
    for (const ops::LayerKv& layer : branch->layers()) {
      work->most_pages = std::max<int64_t>(work->most_pages, layer.page_count);
      work->pages += layer.page_count;
    }
    std::vector<int32_t> tokens, logit_rows;
    branch->ReadTokens(at, at + rows, &tokens);
    for (const int64_t position : kept_) {
      if (position >= at && position < at + rows) {
        logit_rows.push_back(static_cast<int32_t>(position - at));
      }
    }
    const ops::StepSequence sequence = {
        .rows = static_cast<int32_t>(rows), .position = at, .layers = branch->layers()};
    auto output = tags_->Forward({.tokens = tokens,
                                  .sequences = absl::MakeConstSpan(&sequence, 1),
                                  .logit_rows = logit_rows});
    ASSERT_TRUE(output.ok()) << output.status();
    logits_.insert(logits_.end(), output->logits.begin(), output->logits.end());
    branch->Advance(rows);
  }

  const kv::RetentionPolicy policy_ = {kv::RetentionPolicy::Kind::kSlidingWindow, kSinks, kWindow};
  const testing::RandomModel model_;
  std::unique_ptr<CpuBackend> backend_;
  std::unique_ptr<testing::ShadowTags> tags_;
  std::unique_ptr<kv::SessionStore> store_;
  std::vector<int64_t> kept_;  // ascending positions whose logits are kept
  std::vector<float> logits_;  // [kept_, vocabulary]
};

TEST_P(EndlessTest, FiftyThousandTokensThroughAWindowAreTheDenseReferences) {
  const auto seed = static_cast<uint64_t>(std::random_device()());
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const std::vector<int32_t> tokens = model_.Tokens(kTurns * kTurnTokens, seed);
  for (int i = 0; i < 12; ++i) {
    kept_.push_back(static_cast<int64_t>(random() % (kTurns * kTurnTokens)));
  }
  kept_.push_back(kTurns * kTurnTokens - 1);
  std::sort(kept_.begin(), kept_.end());
  kept_.erase(std::unique(kept_.begin(), kept_.end()), kept_.end());

  Work usual;
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    const Work work = Turn(absl::MakeConstSpan(tokens).subspan(turn * kTurnTokens, kTurnTokens));
    EXPECT_LE(work.most_pages, Pages(kSinks) + Pages(kWindow) + 1 + Pages(kChunk));
    // 500 tokens are not whole pages: every fourth turn starts alike.
    if (turn == 8) usual = work;
    if (turn > 8 && turn % 4 == 0) {
      EXPECT_EQ(work.pages, usual.pages) << "turn " << turn;
      // The way to a node grows with the logarithm of the length.
      EXPECT_LE(work.touched, usual.touched * 5 / 4) << "turn " << turn;
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(tags_->problems().empty());
  EXPECT_LE(store_->Snapshot().pages.private_pages, 2 * (Pages(kSinks) + Pages(kWindow) + 1));

  std::vector<ops::AttentionMask> masks;
  for (int layer = 0; layer < 2; ++layer) masks.push_back(policy_.Mask(layer, GetParam()[layer]));
  const std::vector<double> want = ops::ReferenceModel(model_.plan()).Logits(tokens, masks, kept_);
  EXPECT_TRUE(testing::Near(logits_, want, 1e-4 * testing::StandardDeviation(want)));
}

INSTANTIATE_TEST_SUITE_P(Layers, EndlessTest,
                         ::testing::Values(std::vector<int64_t>{0, 0},
                                           std::vector<int64_t>{64, 0}));

}  // namespace
}  // namespace tokend::cpu
