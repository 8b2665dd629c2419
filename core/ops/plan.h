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
// each row a run of blocks of `type`. Not owned. Absent: data is nullptr. A part of
// a fused tensor (q, k, v or gate, up in one) is a Matrix of some of its rows: see
// RowRange in dequantize.h.
struct Matrix {
  base::WeightType type = base::WeightType::kF32;
  int64_t rows = 0;  // outputs
  int64_t cols = 0;  // inputs; a multiple of the type's block
  const std::byte* data = nullptr;

  bool present() const { return data != nullptr; }
};

// A weight vector, widened to f32 by the loader. Not owned. Absent: nullptr.
using Vector = const float*;

// y = W x + bias.
struct Linear {
  Matrix weight;
  Vector bias = nullptr;  // [weight.rows]

  bool present() const { return weight.present(); }
};

// The formulas are in rms_norm.h and layer_norm.h.
enum class NormKind { kRms, kLayer };

// Absent (no weight): out = x.
struct Norm {
  Vector weight = nullptr;
  Vector bias = nullptr;  // kLayer alone, where there is one

  bool present() const { return weight != nullptr; }
};

// What LayerPlan's query_norm and key_norm, RMS norms, each run over.
enum class QkNorm {
  kNone,
  kHead,    // each head by itself; weights [head_dim]
  kVector,  // all heads as one vector; weights [heads * head_dim], [kv_heads * head_dim]
};

// The formulas are in activation.h.
enum class Activation { kSilu, kGeluTanh, kGelu };

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
  double magnitude = 1;                     // times cos and sin (yarn, longrope)
};

inline constexpr int kNoRope = -1;

// One transformer block, s the model's residual_scale, rope the layer's:
//   n = attention_norm(x)
//   a = post_attention_norm(Wo attention(rope(query_norm(Wq n)), rope(key_norm(Wk n)), Wv n))
//   f = post_ffn_norm(ffn(m)),   ffn(m) = Wdown (act(Wgate m) * (Wup m)), without a gate
//                                         Wdown act(Wup m)
// One after the other:            x += s a,  m = ffn_norm(x),  x += s f
// With parallel_residual:         m = ffn_norm(x), or n if that is absent;  x += s (a + f)
struct LayerPlan {
  int64_t local_tokens = 0;  // a query sees itself and those right before it; 0: all
  int rope = 0;              // index in ModelPlan's ropes, or kNoRope
  Norm attention_norm;       // [width]
  Linear query;              // [heads * head_dim, width]
  Linear key;                // [kv_heads * head_dim, width]
  Linear value;              // [kv_heads * head_dim, width]
  Vector query_norm = nullptr;
  Vector key_norm = nullptr;
  Linear attention_output;   // [width, heads * head_dim]
  Norm post_attention_norm;  // [width]
  Norm ffn_norm;             // [width]
  Linear gate;               // [ffn_width, width]; absent: no gate
  Linear up;                 // [ffn_width, width]
  Linear down;               // [width, ffn_width]
  Norm post_ffn_norm;        // [width]
};

// The first block's x is embedding[token] * embedding_scale + position_embedding[position];
// logits are cap(logit_scale * (output(output_norm(x)))), with cap as in soft_cap.h.
struct ModelPlan {
  int64_t width = 0;
  int64_t ffn_width = 0;
  int64_t vocabulary_size = 0;
  int64_t context_tokens = 0;  // as trained, or as the operator cut it
  int heads = 0;
  int kv_heads = 0;  // divides heads
  int head_dim = 0;

  NormKind norm_kind = NormKind::kRms;
  float norm_epsilon = 0;
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  bool parallel_residual = false;
  float residual_scale = 1;
  float attention_scale = 0;     // on q . k, usually 1 / sqrt(head_dim)
  float attention_soft_cap = 0;  // on the scaled q . k, before the mask; 0: none
  float embedding_scale = 1;
  float logit_scale = 1;
  float logit_soft_cap = 0;  // 0: none
  std::vector<Rope> ropes;   // one for each that some layer names

  Matrix embedding;           // [vocabulary_size, width]
  Matrix position_embedding;  // [>= context_tokens, width], or absent; no position is beyond it
  std::vector<LayerPlan> layers;
  Norm output_norm;  // [width]
  Linear output;     // [vocabulary_size, width]; tied: the embedding's own data
};

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_PLAN_H_
