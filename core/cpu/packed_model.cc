#include "core/cpu/packed_model.h"

#include "core/base/status_macros.h"

namespace tokend::cpu {
namespace {

// Every matrix that a plan has, in one fixed order; `packed` is a model with as many
// layers.
struct Pair {
  const ops::Linear* source;
  PackedLinear* packed;
};

std::vector<Pair> Pairs(const ops::ModelPlan& plan, std::vector<PackedLayer>* layers,
                        PackedLinear* output) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const ops::LayerPlan& from = plan.layers[i];
    PackedLayer& to = (*layers)[i];
    pairs.push_back({&from.query, &to.query});
    pairs.push_back({&from.key, &to.key});
    pairs.push_back({&from.value, &to.value});
    pairs.push_back({&from.attention_output, &to.attention_output});
    pairs.push_back({&from.gate, &to.gate});
    pairs.push_back({&from.up, &to.up});
    pairs.push_back({&from.down, &to.down});
  }
  pairs.push_back({&plan.output, output});
  std::erase_if(pairs, [](const Pair& pair) { return !pair.source->present(); });
  return pairs;
}

}  // namespace

ops::Vector PackedModel::Keep(ops::Vector vector, int64_t size) {
  if (vector == nullptr) return nullptr;
  vectors_.emplace_back(vector, vector + size);
  return vectors_.back().data();
}

ops::Norm PackedModel::Keep(const ops::Norm& norm) {
  return {Keep(norm.weight, plan_.width), Keep(norm.bias, plan_.width)};
}

PackedLinear PackedModel::Place(const ops::Linear& linear) {
  std::byte* memory = arena_.Take(PackedMatrix::PackedBytes(linear.weight));
  return {PackedMatrix(linear.weight, memory), Keep(linear.bias, linear.weight.rows)};
}

void PackedModel::KeepVectors(const ops::LayerPlan& from, PackedLayer* to) {
  const bool whole = plan_.qk_norm == ops::QkNorm::kVector;
  to->rope = from.rope;
  to->attention_norm = Keep(from.attention_norm);
  to->query_norm = Keep(from.query_norm, int64_t{plan_.head_dim} * (whole ? plan_.heads : 1));
  to->key_norm = Keep(from.key_norm, int64_t{plan_.head_dim} * (whole ? plan_.kv_heads : 1));
  to->post_attention_norm = Keep(from.post_attention_norm);
  to->ffn_norm = Keep(from.ffn_norm);
  to->post_ffn_norm = Keep(from.post_ffn_norm);
}

void PackedModel::PlaceAll(const ops::ModelPlan& plan) {
  layers_.resize(plan.layers.size());
  for (size_t i = 0; i < plan.layers.size(); ++i) KeepVectors(plan.layers[i], &layers_[i]);
  output_norm_ = Keep(plan.output_norm);
  for (const Pair& pair : Pairs(plan, &layers_, &output_)) *pair.packed = Place(*pair.source);
}

absl::StatusOr<PackedModel> PackedModel::Create(const ops::ModelPlan& plan, ThreadPool* pool,
                                                const PackProgress& progress) {
  PackedModel model;
  model.plan_ = plan;
  model.plan_.layers.clear();
  model.plan_.output_norm = {};
  model.plan_.output = {};
  std::vector<PackedLayer> unplaced(plan.layers.size());
  PackedLinear output;
  int64_t total = 0;
  for (const Pair& pair : Pairs(plan, &unplaced, &output)) {
    total += WeightArena::Rounded(PackedMatrix::PackedBytes(pair.source->weight));
  }
  TOKEND_ASSIGN_OR_RETURN(model.arena_, WeightArena::Create(total));
  model.PlaceAll(plan);
  int64_t done = 0;
  for (const Pair& pair : Pairs(plan, &model.layers_, &model.output_)) {
    const ops::Matrix& source = pair.source->weight;
    PackedMatrix* matrix = &pair.packed->matrix;
    pool->RunPhase(matrix->panels(),
                   [&](int64_t panel, int) { matrix->PackPanels(source, panel, panel + 1); });
    done += WeightArena::Rounded(PackedMatrix::PackedBytes(source));
    if (progress) progress(done, total);
  }
  return model;
}

}  // namespace tokend::cpu
