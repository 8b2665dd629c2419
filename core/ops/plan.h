// What a backend needs to know to run a model: shapes, constants and where each
// weight lies. model/archs/ fills it from a file; a backend reads it once, at
// Create, and may repack the weights.
#ifndef TOKEND_CORE_OPS_PLAN_H_
#define TOKEND_CORE_OPS_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/dtype.h"

namespace tokend::ops {

// A weight matrix as it lies in the file: y = W x with W row-major [rows, cols],
// each row a run of blocks of `type`. Not owned. Absent: data is nullptr.
struct Matrix {
  base::WeightType type = base::WeightType::kF32;
  int64_t rows = 0;  // outputs
  int64_t cols = 0;  // inputs; a multiple of the type's block
  const std::byte* data = nullptr;
};

// A weight vector, widened to f32 by the loader. Not owned. Absent: nullptr.
using Vector = const float*;

// y = W x + bias.
struct Linear {
  Matrix weight;
  Vector bias = nullptr;  // [weight.rows]
};

enum class RopePairing {
  kInterleaved,  // rotates (2i, 2i + 1)
  kHalves,       // rotates (i, i + dims / 2)
};

// Rotates the first `dims` values of each head at position p by the angles
// p * inverse_frequencies[i]; angles are taken in double from the exact integer
// position.
struct Rope {
  RopePairing pairing = RopePairing::kInterleaved;
  int dims = 0;                             // even, <= head_dim
  std::vector<double> inverse_frequencies;  // [dims / 2]
};

// One transformer block:
//   x += Wo attention(rope(Wq n), rope(Wk n), Wv n),  n = rms_norm(x, attention_norm)
//   x += Wdown (silu(Wgate m) * (Wup m)),             m = rms_norm(x, ffn_norm)
struct LayerPlan {
  int64_t local_tokens = 0;         // a query sees itself and those right before it; 0: all
  Vector attention_norm = nullptr;  // [width]
  Linear query;                     // [heads * head_dim, width]
  Linear key;                       // [kv_heads * head_dim, width]
  Linear value;                     // [kv_heads * head_dim, width]
  Linear attention_output;          // [width, heads * head_dim]
  Vector ffn_norm = nullptr;        // [width]
  Linear gate;                      // [ffn_width, width]
  Linear up;                        // [ffn_width, width]
  Linear down;                      // [width, ffn_width]
};

struct ModelPlan {
  int64_t width = 0;
  int64_t ffn_width = 0;
  int64_t vocabulary_size = 0;
  int64_t context_tokens = 0;  // as trained, or as the operator cut it
  int heads = 0;
  int kv_heads = 0;  // divides heads
  int head_dim = 0;
  float norm_epsilon = 0;
  float attention_scale = 0;  // on q . k, usually 1 / sqrt(head_dim)
  Rope rope;

  Matrix embedding;  // [vocabulary_size, width]
  std::vector<LayerPlan> layers;
  Vector output_norm = nullptr;  // [width]
  Linear output;                 // [vocabulary_size, width]; tied: the embedding's own data
};

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_PLAN_H_
