// The norms and matmuls of a ForwardPass: blocks and logits.
#include <algorithm>

#include "core/cpu/forward_pass.h"
#include "core/cpu/forward_worker.h"

namespace tokend::cpu {
namespace {

// Logits that are scaled and capped together, of one row.
constexpr int64_t kLogitsPerChunk = 8192;

}  // namespace

static_assert(static_cast<int>(ops::Activation::kSilu) == 0 &&
              static_cast<int>(ops::Activation::kGeluTanh) == 1 &&
              static_cast<int>(ops::Activation::kGelu) == kActivations - 1);

void ForwardPass::ComputeNorm(const float* x, const ops::Norm& norm, float* out) const {
  const ops::ModelPlan& plan = model_.plan();
  if (plan.norm_kind == ops::NormKind::kRms) {
    kernels_.rms_norm(x, norm.weight, plan.width, plan.norm_epsilon, out);
  } else {
    kernels_.layer_norm(x, norm.weight, norm.bias, plan.width, plan.norm_epsilon, out);
  }
}

void ForwardPass::PrepareNorm(int64_t row, const ops::Norm& norm, Worker* worker,
                              MatmulInput* to) const {
  const float* const x = x_ + row * model_.plan().width;
  if (!norm.present()) return to->SetRow(row, x);
  float* const normed = worker->row.data();
  ComputeNorm(x, norm, normed);
  to->SetRow(row, normed);
}

void ForwardPass::ProjectQkv(const PackedLayer& layer, int64_t rows) {
  const int64_t keys = layer.query.matrix.rows();
  const int64_t values = keys + layer.key.matrix.rows();
  const PanelWork work = Work({{&layer.query, qkv_, qkv_stride_, false},
                               {&layer.key, qkv_ + keys, qkv_stride_, false},
                               {&layer.value, qkv_ + values, qkv_stride_, false}});
  RunMatmuls(Phase::kQkv, kWidthInput, rows, work,
             [&](int64_t row, Worker* worker, MatmulInput* to) {
               PrepareNorm(row, layer.attention_norm, worker, to);
             });
}

void ForwardPass::AddProduct(Phase phase, Input input, const PackedLinear& linear,
                             const ops::Norm& post_norm, int64_t rows, PrepareRow prepare) {
  const int64_t width = model_.plan().width;
  const bool later = AddsLater(post_norm);
  RunMatmuls(phase, input, rows, Work({{&linear, later ? product_ : x_, width, !later}}), prepare);
  if (!later) return;
  ForRows(Phase::kAddProduct, rows, [&](int64_t row, int) {
    float* const product = product_ + row * width;
    if (post_norm.present()) ComputeNorm(product, post_norm, product);
    kernels_.add_scaled(product, model_.plan().residual_scale, width, x_ + row * width);
  });
}

void ForwardPass::AddAttentionOutput(const PackedLayer& layer, int64_t rows) {
  AddProduct(Phase::kAttentionOutput, kHeadsInput, layer.attention_output,
             layer.post_attention_norm, rows, [&](int64_t row, Worker* worker, MatmulInput* to) {
               to->SetRow(row, AttendedRow(row, worker));
             });
}

void ForwardPass::ComputeHidden(const PackedLayer& layer, int64_t rows) {
  const ops::ModelPlan& plan = model_.plan();
  const auto activation = static_cast<size_t>(plan.activation);
  const bool gated = layer.gate.matrix.rows() > 0;
  PanelWork work =
      gated ? Work({{&layer.gate, hidden_, plan.ffn_width, false}, {&layer.up, nullptr, 0, false}})
            : Work({{&layer.up, hidden_, plan.ffn_width, false}});
  if (gated) {
    work.gate = kernels_.gate[activation];
  } else {
    work.activate = kernels_.activate[activation];
  }
  const bool shared = plan.parallel_residual && !layer.ffn_norm.present();
  const ops::Norm& norm = shared ? layer.attention_norm : layer.ffn_norm;
  RunMatmuls(
      Phase::kGateUp, kWidthInput, rows, work,
      [&](int64_t row, Worker* worker, MatmulInput* to) { PrepareNorm(row, norm, worker, to); });
}

void ForwardPass::AddFeedForward(const PackedLayer& layer, int64_t rows) {
  const int64_t ffn = model_.plan().ffn_width;
  AddProduct(Phase::kDown, kFfnInput, layer.down, layer.post_ffn_norm, rows,
             [&](int64_t row, Worker*, MatmulInput* to) { to->SetRow(row, hidden_ + row * ffn); });
}

void ForwardPass::CapLogits(int64_t rows) {
  const ops::ModelPlan& plan = model_.plan();
  if (plan.logit_scale == 1 && plan.logit_soft_cap == 0) return;
  auto* const logits = reinterpret_cast<float*>(logits_.data());
  const int64_t chunks = (plan.vocabulary_size + kLogitsPerChunk - 1) / kLogitsPerChunk;
  RunPhase(Phase::kLogits, rows * chunks, [&](int64_t chunk, int) {
    const int64_t first = chunk % chunks * kLogitsPerChunk;
    kernels_.scale_and_cap(plan.logit_scale, plan.logit_soft_cap,
                           std::min(kLogitsPerChunk, plan.vocabulary_size - first),
                           logits + chunk / chunks * plan.vocabulary_size + first);
  });
}

void ForwardPass::ComputeLogits(int64_t rows) {
  auto* const logits = reinterpret_cast<float*>(logits_.data());
  RunMatmuls(Phase::kLogits, kOutputInput, rows,
             Work({{&model_.output(), logits, model_.plan().vocabulary_size, false}}),
             [&](int64_t row, Worker* worker, MatmulInput* to) {
               PrepareNorm(row, model_.output_norm(), worker, to);
             });
  CapLogits(rows);
}

// Keys and values are stored for all rows; what follows them is computed for those
// that go on, in the last layer those whose logits or scores are wanted.
void ForwardPass::RunLayer(const ops::StepBatch& batch, size_t layer, const KvArena& arena) {
  const PackedLayer& weights = model_.layers()[layer];
  const bool cut = rows_end_early_ || layer + 1 == model_.layers().size();
  const auto all_rows = static_cast<int64_t>(step_row_.size());
  if (all_rows == 0) return;
  ProjectQkv(weights, all_rows);
  StoreKv(layer, all_rows, arena);
  if (cut) {
    ChooseRows(batch, layer);
    KeepStream();
    BuildSpans();
  }
  const auto rows = static_cast<int64_t>(kept_.size());
  if (rows > 0) {
    Attend(layer, arena);
    // In parallel both halves read the stream as it came.
    if (!model_.plan().parallel_residual) AddAttentionOutput(weights, rows);
    ComputeHidden(weights, rows);
    if (model_.plan().parallel_residual) AddAttentionOutput(weights, rows);
    AddFeedForward(weights, rows);
  }
  if (cut) KeepRows();
}

}  // namespace tokend::cpu
