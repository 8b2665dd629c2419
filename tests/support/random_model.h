#ifndef TOKEND_TESTS_SUPPORT_RANDOM_MODEL_H_
#define TOKEND_TESTS_SUPPORT_RANDOM_MODEL_H_

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/ops/plan.h"

namespace tokend::testing {

struct RandomModelOptions {
  uint64_t seed = 1;
  int64_t width = 96;
  int64_t ffn_width = 160;
  int64_t vocabulary_size = 203;
  int layers = 3;
  int heads = 6;
  int kv_heads = 2;
  int head_dim = 16;
  int rope_dims = 16;
  ops::RopePairing pairing = ops::RopePairing::kInterleaved;
  base::WeightType weight_type = base::WeightType::kF32;
  base::WeightType embedding_type = base::WeightType::kF32;
  bool tied = true;
  bool biases = false;
  // The rest of the recipe (see ops/plan.h).
  bool fused = false;  // q, k, v are parts of one matrix; so are gate and up
  ops::NormKind norm_kind = ops::NormKind::kRms;
  bool norm_biases = false;
  bool input_norms = true;  // of a block's two halves
  bool ffn_norm = true;     // false: the second half has none of its own
  bool post_norms = false;
  ops::QkNorm qk_norm = ops::QkNorm::kNone;
  ops::Activation activation = ops::Activation::kSilu;
  bool gated = true;
  bool parallel_residual = false;
  float residual_scale = 1;
  float attention_soft_cap = 0;
  float embedding_scale = 1;
  bool learned_positions = false;
  int rope_tables = 1;   // layer i has table i % rope_tables; 0: none has one
  int plain_period = 0;  // every so manieth layer has none; 0: all have
  double rope_magnitude = 1;
  bool output_bias = false;
  float logit_scale = 1;
  float logit_soft_cap = 0;
};

// A model with random weights, in memory: llama-like unless told otherwise. Scales are chosen such
// that attention is neither flat nor all on one key, and such that no layer drowns the others.
class RandomModel {
 public:
  explicit RandomModel(const RandomModelOptions& options);
  RandomModel(const RandomModel&) = delete;
  RandomModel& operator=(const RandomModel&) = delete;

  const ops::ModelPlan& plan() const { return plan_; }
  // `count` token ids.
  std::vector<int32_t> Tokens(int64_t count, uint64_t seed) const;

 private:
  ops::Matrix NewMatrix(base::WeightType type, int64_t rows, int64_t cols, float scale);
  ops::Linear NewLinear(const RandomModelOptions& options, int64_t rows, int64_t cols, float gain);
  ops::Vector NewVector(int64_t size, float mean, float deviation);
  ops::Norm NewNorm(const RandomModelOptions& options);
  void AddRopes(const RandomModelOptions& options);
  void AddParts(const RandomModelOptions& options,
                std::initializer_list<std::pair<ops::Linear*, int64_t>> parts);
  void AddLayer(const RandomModelOptions& options);
  void AddQkNorms(const RandomModelOptions& options, ops::LayerPlan* layer);

  std::mt19937_64 random_;
  std::deque<std::string> matrices_;
  std::deque<std::vector<float>> vectors_;
  ops::ModelPlan plan_;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_RANDOM_MODEL_H_
