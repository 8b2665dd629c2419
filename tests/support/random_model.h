#ifndef TOKEND_TESTS_SUPPORT_RANDOM_MODEL_H_
#define TOKEND_TESTS_SUPPORT_RANDOM_MODEL_H_

#include <cstdint>
#include <deque>
#include <random>
#include <string>
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
};

// A llama-like model with random weights, in memory. Scales are chosen such that
// attention is neither flat nor all on one key, and such that no layer drowns
// the others.
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

  std::mt19937_64 random_;
  std::deque<std::string> matrices_;
  std::deque<std::vector<float>> vectors_;
  ops::ModelPlan plan_;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_RANDOM_MODEL_H_
