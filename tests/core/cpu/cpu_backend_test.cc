// The CPU backend on small random models, against the dense double reference.
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

// The recipe of every family, f32 and quantised, whole and behind a window; neither
// chunks nor neighbours change a bit.
TEST(CpuBackendTest, EveryFamilyMatchesTheDenseReference) {
  for (testing::FamilyRecipe recipe : testing::FamilyRecipes()) {
    SCOPED_TRACE(recipe.family);
    const RandomModel model(recipe.options);
    const std::vector<int32_t> tokens = model.Tokens(40, 3);
    const std::vector<double> want = testing::ReferenceLogits(model, tokens);
    Rig rig(model, F32Options());
    const std::vector<float> got = rig.Run(tokens, 33);
    EXPECT_TRUE(Near(got, want, 1e-4 * testing::StandardDeviation(want)));
    EXPECT_TRUE(testing::SameBits(rig.Run(tokens, 1), got));
    const ops::AttentionMask mask = {3, 12};
    const std::vector<double> windowed = testing::ReferenceLogits(model, tokens, mask);
    EXPECT_TRUE(
        Near(rig.Run(tokens, 7, mask), windowed, 1e-4 * testing::StandardDeviation(windowed)));

    recipe.options.weight_type = recipe.options.embedding_type = WeightType::kQ8_0;
    const RandomModel quantised(recipe.options);
    const std::vector<double> exact = testing::ReferenceLogits(quantised, tokens);
    double error[2];
    for (const Activations activations : {Activations::kInt8, Activations::kInt16}) {
      CpuBackendOptions options = F32Options();
      options.activations = activations;
      Rig rough(quantised, options);
      const std::vector<float> logits = rough.Run(tokens, 33);
      error[activations == Activations::kInt16] = testing::LargestError(logits, exact);
      EXPECT_TRUE(testing::SameBits(rough.Run(tokens, 1), logits));
      testing::CheckNeighbours(&rough, quantised, 20, 3);
    }
    EXPECT_LT(error[0], 0.3);
    EXPECT_LT(error[1], 1e-2);
    EXPECT_LT(error[1], error[0] / 20);
  }
}

TEST(CpuBackendTest, RefusesAPlanThatContradictsItself) {
  RandomModelOptions shape;
  shape.qk_norm = ops::QkNorm::kHead;
  const RandomModel model(shape);
  const auto message = [&](auto change) {
    ops::ModelPlan plan = model.plan();
    change(&plan);
    const absl::Status status = CpuBackend::Create(plan, F32Options()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status.ToString();
    return std::string(status.message());
  };
  using ::testing::HasSubstr;
  using Plan = ops::ModelPlan;
  EXPECT_THAT(message([](Plan* p) { p->ropes.clear(); }), HasSubstr("rope table 0 of 0"));
  EXPECT_THAT(message([](Plan* p) { p->ropes[0].dims = 18; }), HasSubstr("rope over 18 of 16"));
  EXPECT_THAT(message([](Plan* p) { p->ropes[0].inverse_frequencies.pop_back(); }),
              HasSubstr("7 frequencies"));
  EXPECT_THAT(message([](Plan* p) { p->layers[1].key_norm = nullptr; }), HasSubstr("norms of"));
  EXPECT_THAT(message([](Plan* p) { p->kv_heads = 4; }), HasSubstr("KV heads"));
  EXPECT_THAT(message([](Plan* p) { p->head_dim = 1024; }), HasSubstr("head size"));
}

TEST(CpuBackendTest, RefusesPositionsWithoutAnEmbedding) {
  RandomModelOptions shape;
  shape.learned_positions = true;
  shape.rope_tables = 0;
  const RandomModel model(shape);
  ops::ModelPlan plan = model.plan();
  plan.position_embedding.rows = 50;
  auto backend = CpuBackend::Create(plan, F32Options());
  ASSERT_TRUE(backend.ok()) << backend.status();
  ASSERT_TRUE((*backend)->AllocateArena(100).ok());
  PagedRunner runner(backend->get(), 3, 16, 100, /*seed=*/1);
  PagedRunner::Sequence sequence = runner.NewSequence();
  EXPECT_TRUE(runner.Run(&sequence, model.Tokens(50, 3), 25).ok());
  const auto status = runner.Run(&sequence, model.Tokens(1, 3), 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("position"));
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
