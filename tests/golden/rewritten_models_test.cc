// The CPU backend in its integer modes on small models whose weights are rewritten in
// each type of 32 values a block.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/cpu/cpu_backend.h"
#include "core/gguf/file.h"
#include "core/model/model.h"
#include "core/ops/reference_model.h"
#include "gtest/gtest.h"
#include "tests/golden/tiny_models.h"
#include "tests/support/backend_checks.h"
#include "tests/support/golden.h"
#include "tests/support/rewritten_plan.h"

namespace tokend {
namespace {

constexpr int kPageTokens = 16;

class RewrittenModelTest : public ::testing::TestWithParam<std::string> {};

std::vector<float> RowsAt(absl::Span<const float> logits, absl::Span<const int64_t> positions,
                          int64_t vocabulary) {
  std::vector<float> rows;
  for (const int64_t position : positions) {
    const auto row =
        logits.subspan(static_cast<size_t>(position * vocabulary), static_cast<size_t>(vocabulary));
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

// 40_numerics, on rewritten weights: int8 at most 0.3 of the logits' deviation, int16 at
// most 1e-2 and a twentieth of int8's error, against the same weights in double.
TEST_P(RewrittenModelTest, StaysWithinItsBounds) {
  const auto golden = testing::LoadTinyModel(GetParam());
  if (!golden.has_value()) GTEST_SKIP() << "no ../shared/tiny_models/" << GetParam() << ".gguf";
  const auto file = gguf::File::Open(golden->gguf_path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto model = model::Model::Load(**file, {.context_tokens = golden->context_tokens});
  ASSERT_TRUE(model.ok()) << model.status();
  const testing::GoldenCase& golden_case = golden->cases[1];
  std::vector<int64_t> positions;
  for (const auto& [position, logits] : golden_case.logits) positions.push_back(position);
  for (const auto type : {base::WeightType::kQ4_0, base::WeightType::kQ4_1, base::WeightType::kQ5_0,
                          base::WeightType::kQ5_1, base::WeightType::kQ8_0}) {
    SCOPED_TRACE(std::string(base::GetWeightType(type).name));
    const testing::RewrittenPlan rewritten((*model)->plan(), type);
    const ops::ModelPlan& plan = rewritten.plan();
    const std::vector<ops::AttentionMask> masks = testing::OwnMasks(plan);
    const std::vector<double> want =
        ops::ReferenceModel(plan).Logits(golden_case.ids, masks, positions);
    double error[2];
    for (const auto activations : {base::Activations::kInt8, base::Activations::kInt16}) {
      const auto backend = cpu::CpuBackend::Create(plan, {.threads = 2,
                                                          .activations = activations,
                                                          .kv_dtype = base::KvDtype::kF32,
                                                          .page_tokens = kPageTokens});
      ASSERT_TRUE(backend.ok()) << backend.status();
      const auto layers = static_cast<int>(plan.layers.size());
      ASSERT_TRUE((*backend)->AllocateArena(layers * 4).ok());
      testing::PagedRunner runner(backend->get(), layers, kPageTokens, layers * 4, /*seed=*/1);
      testing::PagedRunner::Sequence sequence = runner.NewSequence();
      sequence.masks = masks;
      const auto logits = runner.Run(&sequence, golden_case.ids, 64);
      ASSERT_TRUE(logits.ok()) << logits.status();
      error[activations == base::Activations::kInt16] =
          testing::LargestError(RowsAt(*logits, positions, plan.vocabulary_size), want);
    }
    EXPECT_LT(error[0], 0.3);
    EXPECT_LT(error[1], 1e-2);
    EXPECT_LT(error[1], error[0] / 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RewrittenModelTest, ::testing::ValuesIn(testing::TinyModelNames()),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace tokend
