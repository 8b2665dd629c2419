#include "tests/golden/tiny_models.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tests/support/compare.h"

namespace tokend::testing {
namespace {

constexpr int64_t kMaxTokens = 320;

int32_t ArgMax(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Returns the last row.
std::vector<float> CheckLogits(const GoldenCase& golden, const GoldenTolerance& tolerance,
                               const std::vector<float>& logits) {
  const size_t vocabulary = logits.size() / golden.ids.size();
  for (const auto& [position, want] : golden.logits) {
    const auto got =
        absl::MakeConstSpan(logits).subspan(static_cast<size_t>(position) * vocabulary, vocabulary);
    const double deviation = StandardDeviation(want);
    EXPECT_TRUE(Near(got, want, tolerance.largest * deviation)) << "position " << position;
    EXPECT_LT(RootMeanSquareError(got, want), tolerance.root_mean_square * deviation)
        << "position " << position;
  }
  return {logits.end() - static_cast<ptrdiff_t>(vocabulary), logits.end()};
}

void CheckCase(const GoldenCase& golden, const GoldenTolerance& tolerance,
               const ops::ModelPlan& plan, int64_t chunk, PagedRunner* runner) {
  SCOPED_TRACE(golden.name);
  PagedRunner::Sequence sequence = runner->NewSequence();
  sequence.masks = OwnMasks(plan);
  auto logits = runner->Run(&sequence, golden.ids, chunk);
  ASSERT_TRUE(logits.ok()) << logits.status();
  std::vector<float> last = CheckLogits(golden, tolerance, *logits);
  const double deviation = StandardDeviation(golden.logits.rbegin()->second);
  const double clear = tolerance.only_clear_tokens ? 2 * tolerance.largest * deviation : 0;
  for (size_t i = 0; i < golden.greedy.size(); ++i) {
    if (golden.gap[i] >= clear) {
      ASSERT_EQ(ArgMax(last), golden.greedy[i])
          << "output token " << i << ", gap " << golden.gap[i];
    }
    logits = runner->Run(&sequence, {&golden.greedy[i], 1}, 1);
    ASSERT_TRUE(logits.ok()) << logits.status();
    last = *std::move(logits);
  }
  runner->Release(&sequence);
}

}  // namespace

std::vector<ops::AttentionMask> OwnMasks(const ops::ModelPlan& plan) {
  std::vector<ops::AttentionMask> masks;
  for (const ops::LayerPlan& layer : plan.layers) {
    masks.push_back({.window_tokens = layer.local_tokens});
  }
  return masks;
}

void CheckGolden(const TinyModel& golden, const GoldenTolerance& tolerance,
                 const ops::ModelPlan& plan, int page_tokens, int64_t chunk,
                 ops::Backend* backend) {
  const auto layers = static_cast<int>(plan.layers.size());
  GoldenTolerance own = tolerance;
  if (tolerance.grows_with_layers) {
    own.largest *= layers / 2.0;
    own.root_mean_square *= layers / 2.0;
  }
  const int64_t pages = layers * (kMaxTokens / page_tokens);
  ASSERT_TRUE(backend->AllocateArena(pages).ok());
  PagedRunner runner(backend, layers, page_tokens, pages, /*seed=*/1);
  for (const GoldenCase& c : golden.cases) CheckCase(c, own, plan, chunk, &runner);
}

}  // namespace tokend::testing
