// Shapes of real models, and which weight types their files mix.
#ifndef TOKEND_TESTS_SUPPORT_MODEL_SHAPES_H_
#define TOKEND_TESTS_SUPPORT_MODEL_SHAPES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/dtype.h"

namespace tokend::testing {

enum class Recipe {
  kLlama,  // RMSNorm, rope, gated SiLU
  kGpt2,   // LayerNorm with bias, learned positions, fused q, k, v, plain GELU, biases
  kPhi3,   // as kLlama with fused q, k, v and fused gate, up; rope in halves
};

struct ModelShape {
  absl::string_view name;
  Recipe recipe = Recipe::kLlama;
  int layers = 0;
  int64_t width = 0;
  int64_t ffn_width = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t vocabulary_size = 0;
  int64_t context_tokens = 0;
  double rope_base = 0;
  bool tied = false;         // the head is the embedding
  int64_t local_tokens = 0;  // see LayerPlan
};

// SmolLM2-135M, GPT-2 124M, Llama-3.2-1B, Llama-2-7B, Llama-3-8B, Phi-3-mini-4k.
absl::Span<const ModelShape> RealShapes();
// nullptr: no such name.
const ModelShape* FindShape(absl::string_view name);

// How a file was quantised; each names the type of most of its matrices.
enum class WeightMix { kF16, kQ4_0, kQ8_0, kQ4_K_M, kQ5_K_M, kQ6_K };

absl::string_view WeightMixName(WeightMix mix);  // "Q4_K_M"
// nullptr: no such name.
const WeightMix* FindWeightMix(absl::string_view name);

enum class MatrixRole {
  kEmbedding,
  kQuery,
  kKey,
  kValue,
  kAttentionOutput,
  kGate,
  kUp,
  kDown,
  kHead
};

// What files customarily hold: the head (or tied embedding) in Q6_K; *_K_M have more
// bits for V and down in the first and last eighth of the layers and every third
// between, and for fused q, k, v; rows that are no multiple of 256 fall back
// to the nearest type of 32.
base::WeightType MixedType(const ModelShape& shape, WeightMix mix, MatrixRole role, int layer,
                           int64_t cols);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_MODEL_SHAPES_H_
