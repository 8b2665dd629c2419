#include "tests/support/random_model.h"

#include <cmath>

#include "core/ops/dequantize.h"
#include "tests/support/random_weights.h"

namespace tokend::testing {

ops::Matrix RandomModel::NewMatrix(base::WeightType type, int64_t rows, int64_t cols, float scale) {
  matrices_.push_back(RandomWeights(type, static_cast<uint64_t>(rows * cols), scale, random_));
  return {type, rows, cols, reinterpret_cast<const std::byte*>(matrices_.back().data())};
}

ops::Vector RandomModel::NewVector(int64_t size, float mean, float deviation) {
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float>& values = vectors_.emplace_back(static_cast<size_t>(size));
  for (float& value : values) value = normal(random_);
  return values.data();
}

// y = W x has about `gain` times the deviation of x.
ops::Linear RandomModel::NewLinear(const RandomModelOptions& options, int64_t rows, int64_t cols,
                                   float gain) {
  const float scale = gain / std::sqrt(static_cast<float>(cols));
  return {NewMatrix(options.weight_type, rows, cols, scale),
          options.biases ? NewVector(rows, 0, 0.3f) : nullptr};
}

ops::Norm RandomModel::NewNorm(const RandomModelOptions& options) {
  ops::Norm norm = {NewVector(options.width, 1, 0.2f), nullptr};
  if (options.norm_biases) norm.bias = NewVector(options.width, 0, 0.2f);
  return norm;
}

void RandomModel::AddRopes(const RandomModelOptions& options) {
  for (int table = 0; table < options.rope_tables; ++table) {
    ops::Rope& rope = plan_.ropes.emplace_back();
    rope.pairing = options.pairing;
    rope.dims = options.rope_dims;
    rope.magnitude = options.rope_magnitude;
    const double base = table == 0 ? 10000.0 : 500.0 * table;
    for (int i = 0; i < options.rope_dims / 2; ++i) {
      rope.inverse_frequencies.push_back(std::pow(base, -2.0 * i / options.rope_dims));
    }
  }
}

void RandomModel::AddQkNorms(const RandomModelOptions& options, ops::LayerPlan* layer) {
  if (options.qk_norm == ops::QkNorm::kNone) return;
  const bool whole = options.qk_norm == ops::QkNorm::kVector;
  layer->query_norm = NewVector(options.head_dim * (whole ? options.heads : 1), 1, 0.2f);
  layer->key_norm = NewVector(options.head_dim * (whole ? options.kv_heads : 1), 1, 0.2f);
}

// One matrix for all of `parts`, or one for each. `rows` are those of each.
void RandomModel::AddParts(const RandomModelOptions& options,
                           std::initializer_list<std::pair<ops::Linear*, int64_t>> parts) {
  int64_t rows = 0;
  for (const auto& [part, count] : parts) {
    if (!options.fused) *part = NewLinear(options, count, options.width, 1);
    rows += count;
  }
  if (!options.fused) return;
  const ops::Linear all = NewLinear(options, rows, options.width, 1);
  int64_t first = 0;
  for (const auto& [part, count] : parts) {
    *part = {ops::RowRange(all.weight, first, count),
             all.bias == nullptr ? nullptr : all.bias + first};
    first += count;
  }
}

void RandomModel::AddLayer(const RandomModelOptions& options) {
  const int64_t query = int64_t{options.heads} * options.head_dim;
  const int64_t kv = int64_t{options.kv_heads} * options.head_dim;
  const auto index = static_cast<int>(plan_.layers.size());
  ops::LayerPlan& layer = plan_.layers.emplace_back();
  const bool plain = options.rope_tables == 0 ||
                     (options.plain_period > 0 && (index + 1) % options.plain_period == 0);
  layer.rope = plain ? ops::kNoRope : index % options.rope_tables;
  if (options.input_norms) layer.attention_norm = NewNorm(options);
  AddParts(options, {{&layer.query, query}, {&layer.key, kv}, {&layer.value, kv}});
  AddQkNorms(options, &layer);
  layer.attention_output = NewLinear(options, options.width, query, 1);
  if (options.post_norms) layer.post_attention_norm = NewNorm(options);
  if (options.input_norms && options.ffn_norm) layer.ffn_norm = NewNorm(options);
  if (options.gated) {
    AddParts(options, {{&layer.gate, options.ffn_width}, {&layer.up, options.ffn_width}});
  } else {
    layer.up = NewLinear(options, options.ffn_width, options.width, 1);
  }
  layer.down = NewLinear(options, options.width, options.ffn_width, 1);
  if (options.post_norms) layer.post_ffn_norm = NewNorm(options);
}

RandomModel::RandomModel(const RandomModelOptions& options) : random_(options.seed) {
  plan_.width = options.width;
  plan_.ffn_width = options.ffn_width;
  plan_.vocabulary_size = options.vocabulary_size;
  plan_.context_tokens = 4096;
  plan_.heads = options.heads;
  plan_.kv_heads = options.kv_heads;
  plan_.head_dim = options.head_dim;
  plan_.norm_kind = options.norm_kind;
  plan_.norm_epsilon = 1e-5f;
  plan_.qk_norm = options.qk_norm;
  plan_.activation = options.activation;
  plan_.parallel_residual = options.parallel_residual;
  plan_.residual_scale = options.residual_scale;
  plan_.attention_scale = 1 / std::sqrt(static_cast<float>(options.head_dim));
  plan_.attention_soft_cap = options.attention_soft_cap;
  plan_.embedding_scale = options.embedding_scale;
  plan_.logit_scale = options.logit_scale;
  plan_.logit_soft_cap = options.logit_soft_cap;
  AddRopes(options);
  const float table = 1 / options.embedding_scale;
  plan_.embedding =
      NewMatrix(options.embedding_type, options.vocabulary_size, options.width, table);
  if (options.learned_positions) {
    plan_.position_embedding =
        NewMatrix(base::WeightType::kF32, plan_.context_tokens, options.width, 0.5f);
  }
  for (int i = 0; i < options.layers; ++i) AddLayer(options);
  plan_.output_norm = NewNorm(options);
  plan_.output.weight =
      options.tied ? plan_.embedding
                   : NewMatrix(options.weight_type, options.vocabulary_size, options.width, 0.3f);
  if (options.output_bias) plan_.output.bias = NewVector(options.vocabulary_size, 0, 0.3f);
}

std::vector<int32_t> RandomModel::Tokens(int64_t count, uint64_t seed) const {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % static_cast<uint64_t>(plan_.vocabulary_size));
  }
  return tokens;
}

}  // namespace tokend::testing
