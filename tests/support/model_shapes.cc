#include "tests/support/model_shapes.h"

namespace tokend::testing {
namespace {

using base::WeightType;

constexpr ModelShape kShapes[] = {
    {.name = "smollm2-135m",
     .layers = 30,
     .width = 576,
     .ffn_width = 1536,
     .heads = 9,
     .kv_heads = 3,
     .head_dim = 64,
     .vocabulary_size = 49152,
     .context_tokens = 8192,
     .rope_base = 100000,
     .tied = true},
    {.name = "gpt2-124m",
     .recipe = Recipe::kGpt2,
     .layers = 12,
     .width = 768,
     .ffn_width = 3072,
     .heads = 12,
     .kv_heads = 12,
     .head_dim = 64,
     .vocabulary_size = 50257,
     .context_tokens = 1024,
     .tied = true},
    {.name = "llama-3.2-1b",
     .layers = 16,
     .width = 2048,
     .ffn_width = 8192,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 64,
     .vocabulary_size = 128256,
     .context_tokens = 131072,
     .rope_base = 500000,
     .tied = true},
    {.name = "llama-2-7b",
     .layers = 32,
     .width = 4096,
     .ffn_width = 11008,
     .heads = 32,
     .kv_heads = 32,
     .head_dim = 128,
     .vocabulary_size = 32000,
     .context_tokens = 4096,
     .rope_base = 10000},
    {.name = "llama-3-8b",
     .layers = 32,
     .width = 4096,
     .ffn_width = 14336,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .vocabulary_size = 128256,
     .context_tokens = 8192,
     .rope_base = 500000},
    {.name = "phi-3-mini",
     .recipe = Recipe::kPhi3,
     .layers = 32,
     .width = 3072,
     .ffn_width = 8192,
     .heads = 32,
     .kv_heads = 32,
     .head_dim = 96,
     .vocabulary_size = 32064,
     .context_tokens = 4096,
     .rope_base = 10000,
     .local_tokens = 2047},
};

struct NamedMix {
  WeightMix mix;
  absl::string_view name;
};

constexpr NamedMix kMixes[] = {
    {WeightMix::kF16, "F16"},       {WeightMix::kQ4_0, "Q4_0"},     {WeightMix::kQ8_0, "Q8_0"},
    {WeightMix::kQ4_K_M, "Q4_K_M"}, {WeightMix::kQ5_K_M, "Q5_K_M"}, {WeightMix::kQ6_K, "Q6_K"},
};

// Layers in which *_K_M spend more bits.
bool MoreBits(int layer, int layers) {
  const int eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

WeightType Base(WeightMix mix) {
  switch (mix) {
    case WeightMix::kF16:
      return WeightType::kF16;
    case WeightMix::kQ4_0:
      return WeightType::kQ4_0;
    case WeightMix::kQ8_0:
      return WeightType::kQ8_0;
    case WeightMix::kQ4_K_M:
      return WeightType::kQ4_K;
    case WeightMix::kQ5_K_M:
      return WeightType::kQ5_K;
    case WeightMix::kQ6_K:
      return WeightType::kQ6_K;
  }
  return WeightType::kF16;
}

WeightType Wanted(const ModelShape& shape, WeightMix mix, MatrixRole role, int layer) {
  const WeightType base = Base(mix);
  if (mix == WeightMix::kF16 || mix == WeightMix::kQ8_0) return base;
  const bool head = role == MatrixRole::kHead || (role == MatrixRole::kEmbedding && shape.tied);
  if (head) return WeightType::kQ6_K;
  if (mix != WeightMix::kQ4_K_M && mix != WeightMix::kQ5_K_M) return base;
  const bool qkv =
      role == MatrixRole::kQuery || role == MatrixRole::kKey || role == MatrixRole::kValue;
  if (qkv && shape.recipe != Recipe::kLlama) {
    return mix == WeightMix::kQ4_K_M ? WeightType::kQ5_K : WeightType::kQ6_K;
  }
  const bool heavy = role == MatrixRole::kValue || role == MatrixRole::kDown;
  return heavy && MoreBits(layer, shape.layers) ? WeightType::kQ6_K : base;
}

}  // namespace

absl::Span<const ModelShape> RealShapes() { return kShapes; }

const ModelShape* FindShape(absl::string_view name) {
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

absl::string_view WeightMixName(WeightMix mix) {
  for (const NamedMix& named : kMixes) {
    if (named.mix == mix) return named.name;
  }
  return "?";
}

const WeightMix* FindWeightMix(absl::string_view name) {
  for (const NamedMix& named : kMixes) {
    if (named.name == name) return &named.mix;
  }
  return nullptr;
}

WeightType MixedType(const ModelShape& shape, WeightMix mix, MatrixRole role, int layer,
                     int64_t cols) {
  const WeightType wanted = Wanted(shape, mix, role, layer);
  if (cols % base::GetWeightType(wanted).block_elements == 0) return wanted;
  switch (wanted) {
    case WeightType::kQ4_K:
      return WeightType::kQ5_0;
    case WeightType::kQ5_K:
      return WeightType::kQ5_1;
    case WeightType::kQ6_K:
      return WeightType::kQ8_0;
    default:
      return WeightType::kF16;
  }
}

}  // namespace tokend::testing
