// The CPU backend on small random models, against the dense double reference.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/ops/reference_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/cpu/backend_rig.h"
#include "tests/support/compare.h"
#include "tests/support/family_recipes.h"

namespace tokend::cpu {
namespace {

using base::Activations;
using base::KvDtype;
using base::WeightType;
using testing::Near;
using testing::PagedRunner;
using testing::RandomModel;
using testing::RandomModelOptions;

// 40_numerics: f32 activations and KV within 1e-4 of the logits' deviation, f16
// KV within 2e-3.
TEST(CpuBackendTest, F32MatchesTheDenseReference) {
  std::vector<RandomModelOptions> shapes(6);
  shapes[0].pairing = ops::RopePairing::kHalves;
  shapes[1] = {2, 75, 101, 97, 2, 3, 1, 25, 24};  // odd everywhere, width no multiple of 32
  shapes[2] = {3, 64, 96, 64, 2, 8, 1, 256, 256};
  shapes[3] = {4, 90, 64, 333, 2, 5, 5, 18, 8};
  shapes[3].biases = true;
  shapes[3].tied = false;
  shapes[4] = Quantised();
  shapes[5] = Quantised();
  shapes[5].weight_type = WeightType::kBF16;
  shapes[5].embedding_type = WeightType::kF16;
  for (const RandomModelOptions& shape : shapes) {
    const RandomModel model(shape);
    const std::vector<int32_t> tokens = model.Tokens(70, 3);
    const std::vector<double> want = testing::ReferenceLogits(model, tokens);
    const double deviation = testing::StandardDeviation(want);
    for (const KvDtype dtype : {KvDtype::kF32, KvDtype::kF16}) {
      CpuBackendOptions options = F32Options();
      options.kv_dtype = dtype;
      options.page_tokens = shape.heads % 2 == 0 ? 16 : 32;
      Rig rig(model, options);
      const double tolerance = dtype == KvDtype::kF32 ? 1e-4 : 2e-3;
      EXPECT_TRUE(Near(rig.Run(tokens, 33), want, tolerance * deviation))
          << "seed " << shape.seed << " width " << shape.width << " " << KvDtypeName(dtype).data();
    }
  }
}

// What it does not run it must refuse, by name, rather than run wrongly.
TEST(CpuBackendTest, RunsOrRefusesEveryFamily) {
  const std::map<std::string, std::string> refused = {
      {"gpt2", "layer norm"},
      {"phi3", "magnitude"},
      {"glm4", "norm of a block's output"},
      {"qwen3", "norm of queries and keys"},
      {"gemma2", "gelu"},
      {"gemma3", "norm of queries and keys"},
      {"olmo2", "norm of queries and keys"},
      {"granite", "residual scale"},
      {"smollm3", "layer without rope"},
      {"phi2", "layer norm"},
      {"starcoder2", "layer norm"},
      {"stablelm", "layer norm"},
      {"gptneox", "layer norm"},
  };
  for (const testing::FamilyRecipe& recipe : testing::FamilyRecipes()) {
    SCOPED_TRACE(recipe.family);
    const RandomModel model(recipe.options);
    const auto found = refused.find(recipe.family);
    if (found != refused.end()) {
      const absl::Status status = CpuBackend::Create(model.plan(), F32Options()).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(found->second));
      continue;
    }
    const std::vector<int32_t> tokens = model.Tokens(40, 3);
    const std::vector<double> want = testing::ReferenceLogits(model, tokens);
    Rig rig(model, F32Options());
    EXPECT_TRUE(Near(rig.Run(tokens, 33), want, 1e-4 * testing::StandardDeviation(want)));
  }
}

// Each field by itself.
TEST(CpuBackendTest, RefusesEveryFieldThatItDoesNotRun) {
  const RandomModel model({});
  const auto message = [&](auto change) {
    ops::ModelPlan plan = model.plan();
    change(&plan);
    const absl::Status status = CpuBackend::Create(plan, F32Options()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status.ToString();
    return std::string(status.message());
  };
  using ::testing::HasSubstr;
  using Plan = ops::ModelPlan;
  EXPECT_THAT(message([](Plan* p) { p->parallel_residual = true; }), HasSubstr("parallel"));
  EXPECT_THAT(message([](Plan* p) { p->attention_soft_cap = 1; }), HasSubstr("cap on attention"));
  EXPECT_THAT(message([](Plan* p) { p->embedding_scale = 2; }), HasSubstr("embedding scale"));
  EXPECT_THAT(message([](Plan* p) { p->logit_scale = 2; }), HasSubstr("logit scale"));
  EXPECT_THAT(message([](Plan* p) { p->logit_soft_cap = 1; }), HasSubstr("cap on logits"));
  EXPECT_THAT(message([](Plan* p) { p->position_embedding = p->embedding; }),
              HasSubstr("embedding of positions"));
  EXPECT_THAT(message([](Plan* p) { p->ropes.push_back(p->ropes[0]); }), HasSubstr("tables"));
  EXPECT_THAT(message([](Plan* p) { p->ropes.clear(); }), HasSubstr("tables"));
  EXPECT_THAT(message([](Plan* p) { p->output_norm = {}; }), HasSubstr("output norm"));
  EXPECT_THAT(message([](Plan* p) { p->layers[1].ffn_norm = {}; }), HasSubstr("its input"));
  EXPECT_THAT(message([](Plan* p) { p->layers[2].attention_norm = {}; }), HasSubstr("its input"));
  EXPECT_THAT(message([](Plan* p) { p->layers[0].gate = {}; }), HasSubstr("without a gate"));
  EXPECT_THAT(message([](Plan* p) { p->layers[0].post_ffn_norm = p->output_norm; }),
              HasSubstr("a block's output"));
}

// A long context: several pieces of attention.
TEST(CpuBackendTest, LongContextMatchesTheDenseReference) {
  RandomModelOptions shape;
  shape.layers = 2;
  shape.width = 32;
  shape.ffn_width = 32;
  shape.heads = 2;
  shape.kv_heads = 1;
  const RandomModel model(shape);
  const std::vector<int32_t> tokens = model.Tokens(700, 5);
  const std::vector<double> want = testing::ReferenceLogits(model, tokens);
  Rig rig(model, F32Options());
  EXPECT_TRUE(Near(rig.Run(tokens, 512), want, 1e-4 * testing::StandardDeviation(want)));
}

TEST(CpuBackendTest, WindowsWithSinksMatchTheDenseReference) {
  const RandomModel model({});
  const std::vector<int32_t> tokens = model.Tokens(300, 6);
  for (const ops::AttentionMask mask :
       {ops::AttentionMask{0, 40}, ops::AttentionMask{4, 40}, ops::AttentionMask{4, 260},
        ops::AttentionMask{20, 33}, ops::AttentionMask{1, 1}, ops::AttentionMask{20, 33, 70}}) {
    SCOPED_TRACE(::testing::Message() << mask.sink_tokens << " + " << mask.window_tokens);
    const std::vector<double> want = testing::ReferenceLogits(model, tokens, mask);
    Rig rig(model, F32Options());
    for (const int64_t chunk : {1, 64}) {
      EXPECT_TRUE(Near(rig.Run(tokens, chunk, mask), want, 1e-4 * testing::StandardDeviation(want)))
          << "chunk " << chunk;
    }
    EXPECT_EQ(rig.runner->free_pages(), kPages);
  }
}

TEST(CpuBackendTest, LayersMayHaveDifferentMasks) {
  const RandomModel model({});
  const std::vector<int32_t> tokens = model.Tokens(120, 7);
  const std::vector<ops::AttentionMask> masks = {{}, {2, 20, 46}, {5, 48}};
  const std::vector<double> want =
      ops::ReferenceModel(model.plan()).Logits(tokens, masks, {50, 119});
  Rig rig(model, F32Options());
  PagedRunner::Sequence sequence = rig.runner->NewSequence();
  sequence.masks = masks;
  const auto got = rig.runner->Run(&sequence, tokens, 17);
  ASSERT_TRUE(got.ok());
  const auto vocabulary = static_cast<size_t>(model.plan().vocabulary_size);
  const double tolerance = 1e-4 * testing::StandardDeviation(want);
  const auto all = absl::MakeConstSpan(*got);
  const auto expected = absl::MakeConstSpan(want);
  EXPECT_TRUE(
      Near(all.subspan(50 * vocabulary, vocabulary), expected.subspan(0, vocabulary), tolerance));
  EXPECT_TRUE(Near(all.subspan(119 * vocabulary, vocabulary),
                   expected.subspan(vocabulary, vocabulary), tolerance));
}

// 40_numerics, on the same quantised weights: int8 at most 0.3 of the logits'
// deviation, int16 at most 1e-2 and a twentieth of int8's error.
TEST(CpuBackendTest, QuantisedActivationsStayWithinTheirBounds) {
  for (const WeightType type :
       {WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0, WeightType::kQ5_1,
        WeightType::kQ8_0, WeightType::kQ4_K, WeightType::kQ5_K, WeightType::kQ6_K}) {
    RandomModelOptions shape = Quantised();
    shape.weight_type = type;
    shape.width = shape.ffn_width = 256;
    shape.head_dim = shape.rope_dims = 32;
    const RandomModel model(shape);
    const std::vector<int32_t> tokens = model.Tokens(40, 8);
    const std::vector<double> want = testing::ReferenceLogits(model, tokens);
    double error[2];
    for (const Activations activations : {Activations::kInt8, Activations::kInt16}) {
      CpuBackendOptions options = F32Options();
      options.activations = activations;
      Rig rig(model, options);
      error[activations == Activations::kInt16] = testing::LargestError(rig.Run(tokens, 64), want);
    }
    const std::string name(base::GetWeightType(type).name);
    EXPECT_LT(error[0], 0.3) << name;
    EXPECT_LT(error[1], 1e-2) << name;
    EXPECT_LT(error[1], error[0] / 20) << name;
  }
}

TEST(CpuBackendTest, Int8KvStaysNearTheReference) {
  const RandomModel model({});
  const std::vector<int32_t> tokens = model.Tokens(100, 9);
  const std::vector<double> want = testing::ReferenceLogits(model, tokens);
  CpuBackendOptions options = F32Options();
  options.kv_dtype = KvDtype::kInt8;
  Rig rig(model, options);
  // Half a step of 1 / 127 of the largest value, a few times amplified.
  EXPECT_LT(testing::LargestError(rig.Run(tokens, 64), want), 0.1);
}

}  // namespace
}  // namespace tokend::cpu
