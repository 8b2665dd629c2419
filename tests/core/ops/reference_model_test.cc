// The dense reference: properties that follow from the formulas of ops/plan.h, each
// of which fails where a field is ignored or used in the wrong place.
#include "core/ops/reference_model.h"

#include <cmath>
#include <vector>

#include "core/ops/dequantize.h"
#include "gtest/gtest.h"
#include "tests/support/compare.h"
#include "tests/support/family_recipes.h"

namespace tokend::ops {
namespace {

using testing::RandomModel;
using testing::RandomModelOptions;

constexpr int64_t kTokens = 12;

std::vector<double> Logits(const ModelPlan& plan, const RandomModel& model) {
  return ReferenceModel(plan).Logits(model.Tokens(kTokens, 4), AttentionMask{}, {3, kTokens - 1});
}

std::vector<double> Logits(const RandomModel& model) { return Logits(model.plan(), model); }

// Largest difference over the deviation of `want`.
double Change(const std::vector<double>& got, const std::vector<double>& want) {
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(got[i] - want[i]));
  }
  return largest / testing::StandardDeviation(want);
}

// Weights times `factor`, as F32.
struct Scaled {
  Scaled(const Linear& from, float factor) : linear(from) {
    EXPECT_EQ(from.weight.type, base::WeightType::kF32);
    values.resize(static_cast<size_t>(from.weight.rows * from.weight.cols));
    DequantizeRowRef(from.weight.type, from.weight.data, absl::MakeSpan(values));
    for (float& value : values) value *= factor;
    linear.weight.data = reinterpret_cast<const std::byte*>(values.data());
    if (from.bias == nullptr) return;
    bias.assign(from.bias, from.bias + from.weight.rows);
    for (float& value : bias) value *= factor;
    linear.bias = bias.data();
  }
  std::vector<float> values, bias;
  Linear linear;
};

TEST(ReferenceModelTest, EveryRecipeGivesFiniteLogitsThatSpread) {
  for (const testing::FamilyRecipe& recipe : testing::FamilyRecipes()) {
    const std::vector<double> logits = Logits(RandomModel(recipe.options));
    for (const double logit : logits) ASSERT_TRUE(std::isfinite(logit)) << recipe.family;
    EXPECT_GT(testing::StandardDeviation(logits), 0.1) << recipe.family;
  }
}

// Every field of a recipe changes the logits when it is taken out.
TEST(ReferenceModelTest, EveryFieldCounts) {
  RandomModelOptions options;
  options.learned_positions = true;
  options.post_norms = true;
  options.qk_norm = QkNorm::kHead;
  options.norm_kind = NormKind::kLayer;
  options.norm_biases = options.biases = true;
  const RandomModel model(options);
  const std::vector<double> want = Logits(model);
  const auto change = [&](auto edit) {
    ModelPlan plan = model.plan();
    edit(&plan, &plan.layers[1]);
    return Change(Logits(plan, model), want);
  };
  using Plan = ModelPlan;
  using Layer = LayerPlan;
  EXPECT_GT(change([](Plan* p, Layer*) { p->norm_kind = NormKind::kRms; }), 0.05);
  EXPECT_GT(change([](Plan* p, Layer*) { p->qk_norm = QkNorm::kNone; }), 0.05);
  EXPECT_GT(change([](Plan* p, Layer*) { p->activation = Activation::kGelu; }), 0.05);
  EXPECT_GT(change([](Plan* p, Layer*) { p->parallel_residual = true; }), 0.05);
  EXPECT_GT(change([](Plan* p, Layer*) { p->attention_soft_cap = 0.5; }), 0.05);
  EXPECT_GT(change([](Plan* p, Layer*) { p->embedding_scale = 2; }), 0.05);
  EXPECT_GT(change([](Plan* p, Layer*) { p->position_embedding = {}; }), 0.05);
  EXPECT_GT(change([](Plan* p, Layer*) { p->output_norm.bias = nullptr; }), 0.05);
  EXPECT_GT(change([](Plan*, Layer* l) { l->rope = kNoRope; }), 0.05);
  EXPECT_GT(change([](Plan*, Layer* l) { l->attention_norm = {}; }), 0.05);
  EXPECT_GT(change([](Plan*, Layer* l) { l->ffn_norm = {}; }), 0.05);
  EXPECT_GT(change([](Plan*, Layer* l) { l->post_attention_norm = {}; }), 0.05);
  EXPECT_GT(change([](Plan*, Layer* l) { l->post_ffn_norm = {}; }), 0.05);
  EXPECT_GT(change([](Plan*, Layer* l) { l->gate = {}; }), 0.05);
}

TEST(ReferenceModelTest, ResidualScaleIsThatOfBothOutputs) {
  for (const bool parallel : {false, true}) {
    RandomModelOptions options;
    options.biases = true;
    options.parallel_residual = parallel;
    options.residual_scale = 0.25f;
    const RandomModel model(options);
    ModelPlan plan = model.plan();
    plan.residual_scale = 1;
    std::vector<Scaled> scaled;
    scaled.reserve(2 * plan.layers.size());
    for (LayerPlan& layer : plan.layers) {
      layer.attention_output = scaled.emplace_back(layer.attention_output, 0.25f).linear;
      layer.down = scaled.emplace_back(layer.down, 0.25f).linear;
    }
    EXPECT_LT(Change(Logits(model), Logits(plan, model)), 1e-12);
  }
}

TEST(ReferenceModelTest, LogitsAreScaledThenCapped) {
  RandomModelOptions options;
  options.output_bias = true;
  options.tied = false;
  const RandomModel plain(options);
  options.logit_scale = 0.5f;
  options.logit_soft_cap = 2;
  std::vector<double> want = Logits(plain);
  for (double& logit : want) logit = 2 * std::tanh(logit * 0.5 / 2);
  EXPECT_LT(Change(Logits(RandomModel(options)), want), 1e-12);
}

TEST(ReferenceModelTest, WithoutAFirstHalfParallelAndSequentialAreTheSame) {
  RandomModelOptions options;
  options.ffn_norm = false;
  options.parallel_residual = true;
  const RandomModel model(options);
  ModelPlan plan = model.plan();
  std::vector<Scaled> scaled;
  scaled.reserve(plan.layers.size());
  for (LayerPlan& layer : plan.layers) {
    layer.attention_output = scaled.emplace_back(layer.attention_output, 0.0f).linear;
  }
  const std::vector<double> parallel = Logits(plan, model);
  plan.parallel_residual = false;
  for (LayerPlan& layer : plan.layers) layer.ffn_norm = layer.attention_norm;
  EXPECT_LT(Change(parallel, Logits(plan, model)), 1e-12);
}

TEST(ReferenceModelTest, OneHeadIsTheWholeVector) {
  RandomModelOptions options;
  options.heads = options.kv_heads = 1;
  options.qk_norm = QkNorm::kHead;
  const RandomModel model(options);
  ModelPlan plan = model.plan();
  plan.qk_norm = QkNorm::kVector;
  EXPECT_EQ(Logits(model), Logits(plan, model));
}

TEST(ReferenceModelTest, ALayerHasItsOwnRope) {
  RandomModelOptions options;
  options.rope_tables = 2;
  const RandomModel model(options);
  ModelPlan plan = model.plan();
  for (double& frequency : plan.ropes[1].inverse_frequencies) frequency = 0;
  const std::vector<double> still = Logits(plan, model);
  EXPECT_GT(Change(Logits(model), still), 0.05);
  plan.layers[1].rope = kNoRope;
  EXPECT_LT(Change(Logits(plan, model), still), 1e-12);
}

}  // namespace
}  // namespace tokend::ops
