// Every architecture, run densely in double, against float32 `transformers`:
// what the loader makes of a file's keys and tensors is right.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/gguf/file.h"
#include "core/model/model.h"
#include "core/ops/reference_model.h"
#include "gtest/gtest.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"

namespace tokend::model {
namespace {

class ArchitecturesGoldenTest : public ::testing::TestWithParam<std::string> {};

int32_t ArgMax(const std::vector<double>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST_P(ArchitecturesGoldenTest, ReferenceAgreesWithTransformers) {
  const auto golden = testing::LoadTinyModel(GetParam());
  if (!golden.has_value()) GTEST_SKIP() << "no ../shared/tiny_models/" << GetParam() << ".gguf";
  const auto file = gguf::File::Open(golden->gguf_path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto model = Model::Load(**file, {.context_tokens = golden->context_tokens});
  ASSERT_TRUE(model.ok()) << model.status();
  const ops::ReferenceModel reference((*model)->plan());
  std::vector<ops::AttentionMask> masks;
  for (const ops::LayerPlan& layer : (*model)->plan().layers) {
    masks.push_back({.window_tokens = layer.local_tokens});
  }
  for (const testing::GoldenCase& c : golden->cases) {
    SCOPED_TRACE(c.name);
    std::vector<int64_t> positions;
    for (const auto& [position, logits] : c.logits) positions.push_back(position);
    const std::vector<double> got = reference.Logits(c.ids, masks, positions);
    size_t row = 0;
    for (const auto& [position, want] : c.logits) {
      const std::vector<float> mine(got.begin() + static_cast<ptrdiff_t>(row * want.size()),
                                    got.begin() + static_cast<ptrdiff_t>((row + 1) * want.size()));
      EXPECT_TRUE(testing::Near(mine, want, 1e-4 * testing::StandardDeviation(want)))
          << "position " << position;
      ++row;
    }
    // Each token runs the whole text again in double: the short prompts will do.
    if (c.ids.size() > 40) continue;
    std::vector<int32_t> ids = c.ids;
    for (size_t i = 0; i < c.greedy.size(); ++i) {
      const int64_t last = static_cast<int64_t>(ids.size()) - 1;
      ids.push_back(ArgMax(reference.Logits(ids, masks, {last})));
      ASSERT_EQ(ids.back(), c.greedy[i]) << "output token " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, ArchitecturesGoldenTest,
                         ::testing::ValuesIn(testing::TinyModelNames()),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace tokend::model
