#include "tests/support/random_model.h"

#include <cmath>

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

RandomModel::RandomModel(const RandomModelOptions& options) : random_(options.seed) {
  plan_.width = options.width;
  plan_.ffn_width = options.ffn_width;
  plan_.vocabulary_size = options.vocabulary_size;
  plan_.context_tokens = 4096;
  plan_.heads = options.heads;
  plan_.kv_heads = options.kv_heads;
  plan_.head_dim = options.head_dim;
  plan_.norm_epsilon = 1e-5f;
  plan_.attention_scale = 1 / std::sqrt(static_cast<float>(options.head_dim));
  plan_.rope.pairing = options.pairing;
  plan_.rope.dims = options.rope_dims;
  for (int i = 0; i < options.rope_dims / 2; ++i) {
    plan_.rope.inverse_frequencies.push_back(std::pow(10000.0, -2.0 * i / options.rope_dims));
  }
  const int64_t query = int64_t{options.heads} * options.head_dim;
  const int64_t kv = int64_t{options.kv_heads} * options.head_dim;
  plan_.embedding = NewMatrix(options.embedding_type, options.vocabulary_size, options.width, 1.0f);
  for (int i = 0; i < options.layers; ++i) {
    ops::LayerPlan& layer = plan_.layers.emplace_back();
    layer.attention_norm = NewVector(options.width, 1, 0.2f);
    layer.query = NewLinear(options, query, options.width, 1);
    layer.key = NewLinear(options, kv, options.width, 1);
    layer.value = NewLinear(options, kv, options.width, 1);
    layer.attention_output = NewLinear(options, options.width, query, 1);
    layer.ffn_norm = NewVector(options.width, 1, 0.2f);
    layer.gate = NewLinear(options, options.ffn_width, options.width, 1);
    layer.up = NewLinear(options, options.ffn_width, options.width, 1);
    layer.down = NewLinear(options, options.width, options.ffn_width, 1);
  }
  plan_.output_norm = NewVector(options.width, 1, 0.2f);
  plan_.output.weight =
      options.tied ? plan_.embedding
                   : NewMatrix(options.weight_type, options.vocabulary_size, options.width, 0.3f);
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
