#include "tests/support/family_recipes.h"

namespace tokend::testing {
namespace {

using Options = RandomModelOptions;

Options Halves() {
  Options options;
  options.pairing = ops::RopePairing::kHalves;
  return options;
}

// LayerNorm and biases everywhere.
Options LayerNormed(Options options) {
  options.norm_kind = ops::NormKind::kLayer;
  options.norm_biases = true;
  options.biases = true;
  return options;
}

Options Ungated(Options options, ops::Activation activation) {
  options.activation = activation;
  options.gated = false;
  return options;
}

Options Gpt2() {
  Options options = Ungated(LayerNormed({}), ops::Activation::kGeluTanh);
  options.fused = true;
  options.learned_positions = true;
  options.rope_tables = 0;
  return options;
}

Options Phi3() {
  Options options = Halves();
  options.fused = true;
  options.rope_dims = 12;
  options.rope_magnitude = 1.19;
  options.tied = false;
  return options;
}

Options Glm4() {
  Options options;
  options.rope_dims = 8;
  options.fused = true;
  options.biases = true;
  options.post_norms = true;
  return options;
}

Options Qwen3() {
  Options options = Halves();
  options.qk_norm = ops::QkNorm::kHead;
  return options;
}

Options Gemma2() {
  Options options = Halves();
  options.activation = ops::Activation::kGeluTanh;
  options.post_norms = true;
  options.embedding_scale = 9.8f;
  options.attention_soft_cap = 3;
  options.logit_soft_cap = 8;
  return options;
}

Options Gemma3() {
  Options options = Gemma2();
  options.attention_soft_cap = options.logit_soft_cap = 0;
  options.qk_norm = ops::QkNorm::kHead;
  options.rope_tables = 2;
  return options;
}

Options Olmo2() {
  Options options = Halves();
  options.input_norms = false;
  options.post_norms = true;
  options.qk_norm = ops::QkNorm::kVector;
  options.tied = false;
  return options;
}

Options Granite() {
  Options options;
  options.embedding_scale = 12;
  options.residual_scale = 0.22f;
  options.logit_scale = 0.125f;
  return options;
}

Options SmolLm3() {
  Options options;
  options.plain_period = 2;
  return options;
}

// One norm for both halves of the block.
Options Phi2() {
  Options options = Ungated(LayerNormed(Halves()), ops::Activation::kGeluTanh);
  options.kv_heads = options.heads;
  options.rope_dims = 8;
  options.parallel_residual = true;
  options.ffn_norm = false;
  options.tied = false;
  options.output_bias = true;
  return options;
}

Options StableLm() {
  Options options = LayerNormed(Halves());
  options.rope_dims = 4;
  return options;
}

Options GptNeoX() {
  Options options = Ungated(LayerNormed(Halves()), ops::Activation::kGelu);
  options.kv_heads = options.heads;
  options.fused = true;
  options.rope_dims = 4;
  options.parallel_residual = true;
  options.tied = false;
  return options;
}

}  // namespace

std::vector<FamilyRecipe> FamilyRecipes() {
  Options chatglm = Glm4();
  chatglm.post_norms = false;
  Options qwen2 = Halves();
  qwen2.biases = true;
  std::vector<FamilyRecipe> recipes = {
      {"llama", {}},
      {"gpt2", Gpt2()},
      {"phi3", Phi3()},
      {"chatglm", chatglm},
      {"glm4", Glm4()},
      {"qwen2", qwen2},
      {"qwen3", Qwen3()},
      {"gemma2", Gemma2()},
      {"gemma3", Gemma3()},
      {"olmo2", Olmo2()},
      {"granite", Granite()},
      {"smollm3", SmolLm3()},
      {"phi2", Phi2()},
      {"starcoder2", Ungated(LayerNormed(Halves()), ops::Activation::kGeluTanh)},
      {"stablelm", StableLm()},
      {"gptneox", GptNeoX()},
  };
  uint64_t seed = 1;
  for (FamilyRecipe& recipe : recipes) recipe.options.seed = seed++;
  return recipes;
}

}  // namespace tokend::testing
