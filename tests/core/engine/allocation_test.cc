// Decoding takes no memory from the heap once a turn is under way: from the step
// loop through the store, the CPU backend and the sampler to the sink, page after
// page. (A piece of text beyond the 15 bytes that a string holds in itself, and
// log-probabilities, do.)
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/observer.h"
#include "core/cpu/cpu_backend.h"
#include "core/engine/scheduler.h"
#include "core/kv/node_pool.h"
#include "gtest/gtest.h"
#include "tests/core/engine/harness.h"
#include "tests/support/allocations.h"
#include "tests/support/random_model.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT

// Takes all and keeps nothing.
class CountingSink : public TurnSink {
 public:
  void OnStarted(const Started&) override {}
  void OnDelta(Delta delta) override { tokens += static_cast<int>(delta.token_ids.size()); }
  void OnFinished(const Finished&) override { ended = true; }
  void OnFailed(const absl::Status& status) override {
    ended = true;
    ADD_FAILURE() << status;
  }
  bool Writable() override { return true; }
  absl::Duration BlockedSince() override { return absl::InfiniteDuration(); }
  int32_t TakenTokens() override { return tokens; }

  int tokens = 0;
  bool ended = false;
};

class AllocationTest : public ::testing::TestWithParam<kv::RetentionPolicy> {
 protected:
  static constexpr int64_t kPages = 3 * 1024;

  AllocationTest() : model_(ModelOptions()) {
    cpu::CpuBackendOptions cpu;
    cpu.threads = 2;
    cpu.max_batch_tokens = 512;
    backend_ = cpu::CpuBackend::Create(model_.plan(), cpu).value();
    EXPECT_TRUE(backend_->AllocateArena(kPages).ok());
    kv::StoreOptions store;
    store.layers = 3;
    store.pages = kPages;
    store.page_bytes = backend_->info().page_bytes;
    store.context_tokens = 4096;
    store.model_fingerprint = "random";
    store_ = kv::SessionStore::Create(store, backend_.get(), &clock_, base::NullObserver()).value();
    EngineOptions engine;
    engine.context_tokens = 4096;
    engine.vocabulary_size = kVocabulary;
    scheduler_ = std::make_unique<Scheduler>(
        engine, Engine::Parts{backend_.get(), store_.get(), &TinyTokenizer(), &TinyChat(), &clock_,
                              base::NullObserver()});
  }

  static RandomModelOptions ModelOptions() {
    RandomModelOptions options;
    options.vocabulary_size = kVocabulary;
    options.layers = 3;
    options.weight_type = base::WeightType::kQ4_1;
    options.embedding_type = base::WeightType::kQ8_0;
    return options;
  }

  // Steps until every sink has `tokens`; the allocations of all steps.
  int64_t StepUntil(int tokens) {
    int64_t count = 0;
    const auto behind = [&](const auto& sink) { return sink->tokens < tokens; };
    while (std::any_of(sinks_.begin(), sinks_.end(), behind)) {
      const int64_t before = AllAllocations().count;
      EXPECT_TRUE(scheduler_->StepOnce().value());
      count += AllAllocations().count - before;
    }
    return count;
  }

  RandomModel model_;
  base::ManualClock clock_;
  std::shared_ptr<cpu::CpuBackend> backend_;
  std::unique_ptr<kv::SessionStore> store_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::shared_ptr<CountingSink>> sinks_;
};

TEST_P(AllocationTest, NoneWhileTurnsDecode) {
  for (int i = 0; i < 4; ++i) {
    Request request = TokensRequest(ByteTokens(absl::StrCat("a turn of its own, number ", i)), 700);
    request.session = OnSession(absl::StrCat("s", i));
    request.session->spec_if_missing.retention = GetParam();
    request.stop.strings = {"never said"};
    request.sampling.temperature = 0.8f;
    request.sampling.top_p = 0.9f;
    request.sampling.repetition_penalty = 1.1f;
    sinks_.push_back(std::make_shared<CountingSink>());
    ASSERT_TRUE(scheduler_->Submit(std::move(request), sinks_.back()).ok());
  }
  EXPECT_GT(StepUntil(1), 0);  // the counter works
  StepUntil(200);
  EXPECT_EQ(StepUntil(600), 0);
  while (scheduler_->StepOnce().value()) {
  }
  for (const auto& sink : sinks_) EXPECT_TRUE(sink->ended);
}

// What nodes give back serves the next, however many come and go.
TEST(NodePoolTest, TakesNoMoreThanAreThereAtOnce) {
  kv::NodePool pool(/*layers=*/3, /*nodes=*/4);
  const int64_t before = AllAllocations().count;
  for (int i = 0; i < 1000; ++i) {
    kv::Node* const node = pool.New();
    node->pages = pool.NewPages();
    EXPECT_EQ(node->pages.size(), 3u);
    std::vector<kv::PageRef> other = pool.NewPages();
    pool.Delete(node);
    pool.GiveBack(std::move(other));
  }
  EXPECT_EQ(AllAllocations().count, before);
}

std::string PolicyName(const ::testing::TestParamInfo<kv::RetentionPolicy>& policy) {
  constexpr std::array kNames = {"Full", "Window", "Layered", "HeavyHitters"};
  return kNames[static_cast<size_t>(policy.param.kind)];
}

using Kind = kv::RetentionPolicy::Kind;
INSTANTIATE_TEST_SUITE_P(
    Policies, AllocationTest,
    ::testing::Values(kv::RetentionPolicy{}, kv::RetentionPolicy{Kind::kSlidingWindow, 4, 64},
                      kv::RetentionPolicy{Kind::kLayered, 4, 64, 1},
                      kv::RetentionPolicy{Kind::kHeavyHitters, 4, 64, 0, 2, 32}),
    PolicyName);

}  // namespace
}  // namespace tokend::engine
