// Files of every architecture, of shapes that families' members have: the plan that the
// loader makes of one gives the logits of the recipe that it was written from, and the
// CPU backend gives those of the plan.
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/cpu/cpu_backend.h"
#include "core/gguf/errors.h"
#include "core/gguf/file.h"
#include "core/model/architectures.h"
#include "core/model/model.h"
#include "core/ops/reference_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/compare.h"
#include "tests/support/family_file.h"
#include "tests/support/paged_runner.h"

namespace tokend::model {
namespace {

using testing::FamilyFile;
using testing::FamilyRecipe;
using testing::FamilyShape;

constexpr int kPageTokens = 16;

absl::StatusOr<std::unique_ptr<gguf::File>> Parse(const std::string& bytes) {
  return gguf::File::Parse(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
}

std::vector<ops::AttentionMask> OwnMasks(const ops::ModelPlan& plan) {
  std::vector<ops::AttentionMask> masks;
  for (const ops::LayerPlan& layer : plan.layers) {
    masks.push_back({.window_tokens = layer.local_tokens});
  }
  return masks;
}

std::vector<float> RunOnCpu(const ops::ModelPlan& plan, absl::Span<const int32_t> tokens) {
  const auto backend = cpu::CpuBackend::Create(plan, {.threads = 2,
                                                      .activations = base::Activations::kF32,
                                                      .kv_dtype = base::KvDtype::kF32,
                                                      .page_tokens = kPageTokens});
  EXPECT_TRUE(backend.ok()) << backend.status();
  if (!backend.ok()) return {};
  const auto layers = static_cast<int>(plan.layers.size());
  EXPECT_TRUE((*backend)->AllocateArena(layers * 4).ok());
  testing::PagedRunner runner(backend->get(), layers, kPageTokens, layers * 4, /*seed=*/1);
  testing::PagedRunner::Sequence sequence = runner.NewSequence();
  sequence.masks = OwnMasks(plan);
  auto logits = runner.Run(&sequence, tokens, 23);
  EXPECT_TRUE(logits.ok()) << logits.status();
  return logits.ok() ? *std::move(logits) : std::vector<float>();
}

class FamilyFilesTest : public ::testing::TestWithParam<FamilyRecipe> {};

TEST_P(FamilyFilesTest, MeanWhatTheRecipeSays) {
  // Heads by themselves narrower or wider than their share of the width, odd counts.
  const FamilyShape shapes[] = {
      {},
      {.heads = 5,
       .kv_heads = 1,
       .head_dim = 24,
       .rope_base = 1e6,
       .epsilon = 1e-6f,
       .tied = false},
      {.heads = 9,
       .kv_heads = 3,
       .head_dim = 18,
       .rope_base = 500,
       .epsilon = 2e-3f,
       .fused = false,
       .global_period = 2},
      {.heads = 1, .kv_heads = 1, .head_dim = 16, .epsilon = 1e-3f, .tied = false, .fused = false},
  };
  std::vector<int32_t> tokens(40);
  std::iota(tokens.begin(), tokens.end(), 50);
  std::vector<int64_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  for (const FamilyShape& shape : shapes) {
    SCOPED_TRACE(::testing::Message() << shape.heads << " heads of " << shape.head_dim);
    FamilyFile written(GetParam(), shape);
    const std::string bytes = written.Build();
    const auto file = Parse(bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto model = Model::Load(**file, {});
    ASSERT_TRUE(model.ok()) << model.status();
    const ops::ModelPlan& expected = written.plan();
    const ops::ModelPlan& plan = (*model)->plan();
    ASSERT_EQ(OwnMasks(plan), OwnMasks(expected));
    const std::vector<double> want =
        ops::ReferenceModel(expected).Logits(tokens, OwnMasks(expected), positions);
    const std::vector<double> read =
        ops::ReferenceModel(plan).Logits(tokens, OwnMasks(plan), positions);
    const double deviation = testing::StandardDeviation(want);
    const std::vector<float> rounded(read.begin(), read.end());
    // Scales are f32, rounded in one order or another.
    EXPECT_TRUE(testing::Near(rounded, want, 3e-6 * deviation));
    EXPECT_TRUE(testing::Near(RunOnCpu(plan, tokens), want, 1e-4 * deviation));
  }
}

// The norms, weights and biases of a family belong to it.
TEST_P(FamilyFilesTest, AreRefusedWithoutOneOfTheirTensors) {
  const std::string& family = GetParam().family;
  FamilyFile written(GetParam(), {.tied = false});
  written.Build();
  const std::vector<std::string> tensors = written.tensors();
  const bool free_biases = family == "chatglm" || family == "glm4" || family == "stablelm";
  for (const std::string& tensor : tensors) {
    const bool is_free = (tensor == "output.weight" && family != "phi2") ||
                         (free_biases && tensor.find("attn_") != std::string::npos &&
                          tensor.find("norm") == std::string::npos && tensor.ends_with(".bias"));
    if (is_free) continue;
    const std::string bytes = written.Build(tensor);
    const auto file = Parse(bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    const absl::Status status = Model::Load(**file, {}).status();
    EXPECT_TRUE(gguf::IsBadModelFile(status)) << tensor << ": " << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyFilesTest, ::testing::ValuesIn(testing::FamilyRecipes()),
                         [](const auto& p) { return p.param.family; });

TEST(ArchitecturesTest, EachHasARecipeThatItIsTestedBy) {
  std::vector<std::string> recipes, known;
  for (const FamilyRecipe& recipe : testing::FamilyRecipes()) recipes.push_back(recipe.family);
  for (const Architecture& architecture : Architectures()) known.emplace_back(architecture.name);
  EXPECT_THAT(known, ::testing::UnorderedElementsAreArray(recipes));
}

}  // namespace
}  // namespace tokend::model
