#ifndef TOKEND_CORE_CPU_PACKED_MODEL_H_
#define TOKEND_CORE_CPU_PACKED_MODEL_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/cpu/huge_pages.h"
#include "core/cpu/packed_matrix.h"
#include "core/cpu/thread_pool.h"
#include "core/ops/plan.h"

namespace tokend::cpu {

struct PackedLinear {
  PackedMatrix matrix;
  const float* bias = nullptr;  // [matrix.rows()], or none
};

// See ops::LayerPlan.
struct PackedLayer {
  int rope = ops::kNoRope;
  ops::Norm attention_norm;
  PackedLinear query, key, value;
  ops::Vector query_norm = nullptr;
  ops::Vector key_norm = nullptr;
  PackedLinear attention_output;
  ops::Norm post_attention_norm;
  ops::Norm ffn_norm;
  PackedLinear gate, up, down;
  ops::Norm post_ffn_norm;
};

// Bytes done and bytes in all.
using PackProgress = std::function<void(int64_t done, int64_t total)>;

// A plan's weights in the kernels' layout. Owns them, its vectors included; of
// the plan it keeps the numbers and the embeddings, whose rows it reads from the
// file's own data. Immutable.
class PackedModel {
 public:
  PackedModel() = default;
  // RESOURCE_EXHAUSTED if there is no memory.
  static absl::StatusOr<PackedModel> Create(const ops::ModelPlan& plan, ThreadPool* pool,
                                            const PackProgress& progress);

  // Without layers and vectors: those are below.
  const ops::ModelPlan& plan() const { return plan_; }
  const std::vector<PackedLayer>& layers() const { return layers_; }
  const ops::Norm& output_norm() const { return output_norm_; }
  const PackedLinear& output() const { return output_; }
  int64_t weight_bytes() const { return arena_.size(); }
  int64_t HugePageBytes() const { return arena_.HugePageBytes(); }

 private:
  ops::Vector Keep(ops::Vector vector, int64_t size);
  ops::Norm Keep(const ops::Norm& norm);
  PackedLinear Place(const ops::Linear& linear);
  void KeepVectors(const ops::LayerPlan& from, PackedLayer* to);
  void PlaceAll(const ops::ModelPlan& plan);

  ops::ModelPlan plan_;
  WeightArena arena_;
  std::vector<std::vector<float>> vectors_;
  std::vector<PackedLayer> layers_;
  ops::Norm output_norm_;
  PackedLinear output_;
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_PACKED_MODEL_H_
