// A model file that is well-formed GGUF and still not a model: each fault is one
// line that names the key or the tensor.
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/gguf/errors.h"
#include "core/gguf/file.h"
#include "core/model/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/random_weights.h"

namespace tokend::model {
namespace {

using ::testing::HasSubstr;

// A whole one-layer model of width 32, 4 heads over 2 of 8, f = 64, 40 tokens.
struct Recipe {
  std::string architecture = "llama";
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t rope_dims = 8;
  float rope_base = 10000;
  float epsilon = 1e-5f;
  uint32_t context = 128;
  std::string scaling;
  float scaling_factor = 0;
  uint32_t original_context = 0;
  uint32_t blocks = 1;
  uint32_t experts = 0;
  std::string left_out;   // tensor
  std::string misshaped;  // tensor with one row too many
  std::string extra;      // tensor nobody asked for
  std::vector<float> rope_factors;
  float sampling_temperature = -1;
};

void AddTensors(const Recipe& recipe, testing::GgufWriter* writer) {
  std::mt19937_64 rng(1);
  const auto add = [&](const std::string& name, uint64_t cols, uint64_t rows) {
    if (name == recipe.left_out) return;
    if (name == recipe.misshaped) ++rows;
    const std::vector<uint64_t> shape =
        rows == 0 ? std::vector<uint64_t>{cols} : std::vector<uint64_t>{cols, rows};
    writer->Tensor(
        name, shape, base::WeightType::kF32,
        testing::RandomWeights(base::WeightType::kF32, cols * (rows == 0 ? 1 : rows), 1.0f, rng));
  };
  add("token_embd.weight", 32, 40);
  add("output_norm.weight", 32, 0);
  add("blk.0.attn_norm.weight", 32, 0);
  add("blk.0.attn_q.weight", 32, 32);
  add("blk.0.attn_k.weight", 32, 16);
  add("blk.0.attn_v.weight", 32, 16);
  add("blk.0.attn_output.weight", 32, 32);
  add("blk.0.ffn_norm.weight", 32, 0);
  add("blk.0.ffn_gate.weight", 32, 64);
  add("blk.0.ffn_up.weight", 32, 64);
  add("blk.0.ffn_down.weight", 64, 32);
  if (!recipe.extra.empty()) add(recipe.extra, 32, 0);
  if (!recipe.rope_factors.empty()) {
    std::string data;
    for (float f : recipe.rope_factors) data += testing::Bytes(f);
    writer->Tensor("rope_freqs.weight", std::vector<uint64_t>{recipe.rope_factors.size()},
                   base::WeightType::kF32, data);
  }
}

std::string Write(const Recipe& recipe) {
  testing::GgufWriter writer;
  writer.String("general.architecture", recipe.architecture)
      .U32("llama.block_count", recipe.blocks)
      .U32("llama.context_length", recipe.context)
      .U32("llama.embedding_length", 32)
      .U32("llama.feed_forward_length", 64)
      .U32("llama.attention.head_count", recipe.heads)
      .U32("llama.attention.head_count_kv", recipe.kv_heads)
      .U32("llama.rope.dimension_count", recipe.rope_dims)
      .F32("llama.rope.freq_base", recipe.rope_base)
      .F32("llama.attention.layer_norm_rms_epsilon", recipe.epsilon);
  if (!recipe.scaling.empty()) {
    writer.String("llama.rope.scaling.type", recipe.scaling)
        .F32("llama.rope.scaling.factor", recipe.scaling_factor);
  }
  if (recipe.original_context > 0) {
    writer.U32("llama.rope.scaling.original_context_length", recipe.original_context);
  }
  if (recipe.experts > 0) writer.U32("llama.expert_count", recipe.experts);
  if (recipe.sampling_temperature >= 0) {
    writer.F32("general.sampling.temp", recipe.sampling_temperature);
  }
  AddTensors(recipe, &writer);
  return writer.Build();
}

// The model of a recipe with the bytes that it points into.
struct Loaded {
  std::string bytes;
  std::unique_ptr<gguf::File> file;
  absl::StatusOr<std::unique_ptr<Model>> model = absl::UnknownError("not loaded");
};

Loaded Load(const Recipe& recipe, const ModelOptions& options = {}) {
  Loaded loaded{.bytes = Write(recipe)};
  auto file = gguf::File::Parse(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(loaded.bytes.data()), loaded.bytes.size()));
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return loaded;
  loaded.file = *std::move(file);
  loaded.model = Model::Load(*loaded.file, options);
  return loaded;
}

TEST(ModelLoadTest, ReadsShapesAndFacts) {
  const Loaded loaded = Load({});
  ASSERT_TRUE(loaded.model.ok()) << loaded.model.status();
  const ops::ModelPlan& plan = (*loaded.model)->plan();
  EXPECT_EQ(plan.width, 32);
  EXPECT_EQ(plan.head_dim, 8);
  EXPECT_EQ(plan.kv_heads, 2);
  EXPECT_EQ(plan.vocabulary_size, 40);
  EXPECT_EQ(plan.context_tokens, 128);
  EXPECT_EQ(plan.output.weight.data, plan.embedding.data) << "tied where output.weight is absent";
  EXPECT_EQ((*loaded.model)->facts().weight_type, "F32");
  EXPECT_EQ((*loaded.model)->facts().parameter_count,
            40 * 32 + 3 * 32 + 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64);
  EXPECT_FLOAT_EQ((*loaded.model)->facts().default_sampling.temperature, 0.8f);
}

TEST(ModelLoadTest, TakesTheFilesOwnSamplingDefaults) {
  const Loaded loaded = Load({.sampling_temperature = 0.25f});
  ASSERT_TRUE(loaded.model.ok()) << loaded.model.status();
  EXPECT_FLOAT_EQ((*loaded.model)->facts().default_sampling.temperature, 0.25f);
}

TEST(ModelLoadTest, RopeScaling) {
  const Loaded plain = Load({});
  const Loaded linear = Load({.scaling = "linear", .scaling_factor = 4});
  const Loaded factors = Load({.rope_factors = {1, 2, 4, 8}});
  ASSERT_TRUE(linear.model.ok()) << linear.model.status();
  ASSERT_TRUE(factors.model.ok()) << factors.model.status();
  const auto& base = (*plain.model)->plan().ropes[0].inverse_frequencies;
  ASSERT_EQ(base.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ((*linear.model)->plan().ropes[0].inverse_frequencies[i], base[i] / 4);
    EXPECT_DOUBLE_EQ((*factors.model)->plan().ropes[0].inverse_frequencies[i],
                     base[i] / static_cast<double>(1 << i));
  }
}

// By hand: 8 dimensions of base 10000 turn 32 times and once in 4096 tokens at 1.31 and at
// 2.81, so the ramp goes from pair 1 to pair 3.
TEST(ModelLoadTest, YarnRamps) {
  const Loaded plain = Load({});
  const Loaded yarn = Load({.scaling = "yarn", .scaling_factor = 4, .original_context = 4096});
  ASSERT_TRUE(yarn.model.ok()) << yarn.model.status();
  const auto& base = (*plain.model)->plan().ropes[0].inverse_frequencies;
  const ops::Rope& rope = (*yarn.model)->plan().ropes[0];
  const double kept[] = {1, 1, 0.625, 0.25};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(rope.inverse_frequencies[i], base[i] * kept[i]) << i;
  }
  EXPECT_DOUBLE_EQ(rope.magnitude, 1.1386294361119891);  // 1 + 0.1 ln 4
  EXPECT_EQ((*yarn.model)->facts().attributes.at("rope_scaling"), "yarn, 4");
}

TEST(ModelLoadTest, ContextMayBeCutButNotStretched) {
  EXPECT_EQ((*Load({}, {.context_tokens = 64}).model)->plan().context_tokens, 64);
  const auto status = Load({}, {.context_tokens = 129}).model.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("context"));
}

struct Fault {
  std::string name;
  Recipe recipe;
  std::string message;
};

class ModelFaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(ModelFaultTest, IsRefusedByName) {
  const auto status = Load(GetParam().recipe).model.status();
  EXPECT_TRUE(gguf::IsBadModelFile(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_EQ(std::string(status.message()).find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, ModelFaultTest,
    ::testing::Values(
        Fault{"architecture", {.architecture = "mamba9"}, "known: llama"},
        Fault{"kv_heads", {.kv_heads = 3}, "attention.head_count_kv"},
        Fault{"zero_heads", {.heads = 0}, "attention.head_count"},
        Fault{"heads", {.heads = 5, .kv_heads = 5}, "attention.head_count"},
        Fault{"odd_rope", {.rope_dims = 7}, "rope.dimension_count"},
        Fault{"wide_rope", {.rope_dims = 10}, "rope.dimension_count"},
        Fault{"rope_base", {.rope_base = -1}, "rope.freq_base"},
        Fault{"epsilon", {.epsilon = 0}, "layer_norm_rms_epsilon"},
        Fault{"context", {.context = 0}, "context_length"},
        Fault{"scaling", {.scaling = "su", .scaling_factor = 2}, "rope.scaling.type"},
        Fault{"blocks", {.blocks = 1 << 24}, "block_count"},
        Fault{"missing_block", {.blocks = 2}, "blk.1.attn_norm.weight"},
        Fault{"yarn_without_context", {.scaling = "yarn", .scaling_factor = 2}, "original_context"},
        Fault{"scaling_factor", {.scaling = "linear", .scaling_factor = 0}, "scaling.factor"},
        Fault{"rope_factor", {.rope_factors = {1, 0, 1, 1}}, "rope_freqs.weight"},
        Fault{"rope_factor_count", {.rope_factors = {1, 1}}, "rope_freqs.weight"},
        Fault{"experts", {.experts = 8}, "expert_count"},
        Fault{"missing", {.left_out = "blk.0.attn_v.weight"}, "blk.0.attn_v.weight"},
        Fault{"shape", {.misshaped = "blk.0.ffn_up.weight"}, "blk.0.ffn_up.weight"},
        Fault{"extra", {.extra = "blk.0.attn_q_norm.weight"}, "blk.0.attn_q_norm.weight"}),
    [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace tokend::model
