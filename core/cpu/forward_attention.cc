// Keys, values and attention of a ForwardPass.
#include <algorithm>

#include "core/base/check.h"
#include "core/cpu/forward_pass.h"
#include "core/cpu/forward_worker.h"
#include "core/ops/attention.h"

namespace tokend::cpu {
namespace {

constexpr double kLog2E = 1.4426950408889634;

}  // namespace

// In place, all of a row's queries and keys.
void ForwardPass::NormHeads(const PackedLayer& layer, float* row) const {
  const ops::ModelPlan& plan = model_.plan();
  if (plan.qk_norm == ops::QkNorm::kNone) return;
  const bool whole = plan.qk_norm == ops::QkNorm::kVector;
  auto norm = [&](ops::Vector weight, int heads, float* x) {
    const int64_t size = int64_t{plan.head_dim} * (whole ? heads : 1);
    for (int64_t at = 0; at < int64_t{plan.head_dim} * heads; at += size) {
      kernels_.rms_norm(x + at, weight, size, plan.norm_epsilon, x + at);
    }
  };
  norm(layer.query_norm, plan.heads, row);
  norm(layer.key_norm, plan.kv_heads, row + int64_t{plan.heads} * plan.head_dim);
}

void ForwardPass::StoreKv(size_t layer, int64_t rows, const KvArena& arena) {
  const ops::ModelPlan& plan = model_.plan();
  const KvLayout& layout = arena.layout();
  const int64_t half = layout.half_page_bytes();
  const PackedLayer& weights = model_.layers()[layer];
  const RopeAngles& angles = Angles(weights);
  ForRows(Phase::kStoreKv, rows, [&](int64_t row, int) {
    NormHeads(weights, qkv_ + row * qkv_stride_);
    const ops::LayerKv& table = row_sequence_[static_cast<size_t>(row)]->layers[layer];
    const int64_t position = positions_[static_cast<size_t>(row)];
    if (position < table.store_begin) return;
    const auto page = static_cast<int64_t>(ops::FindPage(table, position / layout.page_tokens));
    TOKEND_CHECK(page >= 0 && page < arena.pages());
    const KvSlot slot = {arena.keys() + page * half, arena.values() + page * half,
                         static_cast<int>(position % layout.page_tokens)};
    const float* keys = qkv_ + row * qkv_stride_ + int64_t{plan.heads} * plan.head_dim;
    const float* values = keys + int64_t{plan.kv_heads} * plan.head_dim;
    const int64_t step_row = step_row_[static_cast<size_t>(row)];
    float rotated[kMaxHeadDim];
    for (int head = 0; head < plan.kv_heads; ++head) {
      const int64_t at = int64_t{head} * plan.head_dim;
      kernels_.rotate(keys + at, angles.Row(step_row), plan.head_dim, 1.0f, rotated);
      kernels_.store_kv(layout, slot, head, rotated, values + at);
    }
  });
}

bool ForwardPass::SplitRowIntoUnits(const RowSpan& span, const ops::LayerKv& layer) {
  const ops::ModelPlan& plan = model_.plan();
  const int64_t position = positions_[static_cast<size_t>(span.row)];
  const VisiblePieces pieces(layer.mask, position, position);
  const int64_t state = StateFloats(plan.heads / plan.kv_heads, DimStride(plan.head_dim));
  const int64_t needed = plan.kv_heads * pieces.size() * state;
  const auto room = partials_.size() / static_cast<int64_t>(sizeof(float));
  if (pieces.size() < 2 || partial_floats_ + needed > room) return false;
  float* partials = reinterpret_cast<float*>(partials_.data()) + partial_floats_;
  partial_floats_ += needed;
  split_rows_[static_cast<size_t>(span.out_row)] = {partials, pieces.size()};
  for (int head = 0; head < plan.kv_heads; ++head) {
    for (int64_t i = 0; i < pieces.size(); ++i) {
      units_.push_back({span.sequence, span.row, span.out_row, 1, head, pieces[i],
                        partials + (head * pieces.size() + i) * state});
    }
  }
  return true;
}

void ForwardPass::AddUnits(const RowSpan& span, const ops::LayerKv& layer, bool split) {
  const ops::ModelPlan& plan = model_.plan();
  if (split && span.rows == 1 && layer.scores == nullptr && SplitRowIntoUnits(span, layer)) return;
  const int32_t tile = std::max(1, kTileQueries / (plan.heads / plan.kv_heads));
  // The last rows see most and go first.
  for (int32_t end = span.rows; end > 0; end -= std::min(end, tile)) {
    const int32_t begin = std::max(0, end - tile);
    for (int head = 0; head < plan.kv_heads; ++head) {
      units_.push_back(
          {span.sequence, span.row + begin, span.out_row + begin, end - begin, head, -1, nullptr});
    }
  }
}

void ForwardPass::RotateQueries(const Unit& unit, size_t layer, bool sinks,
                                const AttentionWorkspace& to) const {
  const RopeAngles& angles = Angles(model_.layers()[layer]);
  const ops::AttentionMask& mask = unit.sequence->layers[layer].mask;
  const ops::ModelPlan& plan = model_.plan();
  const int group = plan.heads / plan.kv_heads;
  const auto factor = static_cast<float>(plan.attention_scale * kLog2E);
  for (int32_t i = 0; i < unit.rows; ++i) {
    const int64_t row = unit.row + i;
    const int64_t step_row = step_row_[static_cast<size_t>(row)];
    const int64_t position = positions_[static_cast<size_t>(row)];
    const float* heads = qkv_ + row * qkv_stride_ + int64_t{unit.kv_head} * group * plan.head_dim;
    for (int g = 0; g < group; ++g) {
      const int64_t at = (int64_t{i} * group + g) * plan.head_dim;
      const float* head = heads + int64_t{g} * plan.head_dim;
      kernels_.rotate(head, angles.Row(step_row), plan.head_dim, factor, to.query() + at);
      if (!sinks) continue;
      kernels_.rotate(head, angles.SinkRow(step_row, position, mask), plan.head_dim, factor,
                      to.sink_query() + at);
    }
  }
}

void ForwardPass::AttendUnit(const Unit& unit, size_t layer, const KvArena& arena, Worker* worker) {
  const ops::ModelPlan& plan = model_.plan();
  const int group = plan.heads / plan.kv_heads;
  const ops::LayerKv& table = unit.sequence->layers[layer];
  const int64_t position = positions_[static_cast<size_t>(unit.row)];
  const int64_t last = position + unit.rows - 1;
  const bool sinks = table.mask.SeesSinks(position) && table.mask.SinkPosition(last) != last;
  const AttentionWorkspace& workspace = worker->attention;
  RotateQueries(unit, layer, sinks, workspace);
  const AttentionTask task = {&table,
                              unit.kv_head,
                              group,
                              position,
                              unit.rows,
                              workspace.query(),
                              sinks ? workspace.sink_query() : nullptr,
                              static_cast<float>(plan.attention_soft_cap * kLog2E)};
  const int64_t stride = workspace.scratch().dim_stride;
  if (unit.piece >= 0) {
    return AttendPiece(attention_kernels_, arena, task, unit.piece, workspace,
                       PlaceState(unit.partial, group, stride));
  }
  AttendAll(attention_kernels_, arena, task, workspace);
  if (table.scores != nullptr) Weigh(attention_kernels_, arena, task, workspace);
  for (int q = 0; q < unit.rows * group; ++q) {
    const int64_t row = unit.out_row + q / group;
    const int64_t head = int64_t{unit.kv_head} * group + q % group;
    attention_kernels_.finish(workspace.total(), q, stride, plan.head_dim,
                              attended_ + (row * plan.heads + head) * plan.head_dim);
  }
}

void ForwardPass::Attend(size_t layer, const KvArena& arena) {
  int64_t single_rows = 0, rows = 0;
  for (const RowSpan& span : spans_) {
    single_rows += span.rows == 1 ? 1 : 0;
    rows += span.rows;
  }
  const bool split = pool_.threads() > 1 &&
                     single_rows * model_.plan().kv_heads < kSplitUnitsPerThread * pool_.threads();
  units_.clear();
  split_rows_.assign(static_cast<size_t>(rows), SplitRow{});
  partial_floats_ = 0;
  for (const RowSpan& span : spans_) AddUnits(span, span.sequence->layers[layer], split);
  RunPhase(Phase::kAttention, static_cast<int64_t>(units_.size()), [&](int64_t unit, int worker) {
    AttendUnit(units_[static_cast<size_t>(unit)], layer, arena,
               workers_[static_cast<size_t>(worker)].get());
  });
}

const float* ForwardPass::AttendedRow(int64_t row, Worker* worker) const {
  const ops::ModelPlan& plan = model_.plan();
  const SplitRow& split = split_rows_[static_cast<size_t>(row)];
  if (split.partials == nullptr) return attended_ + row * plan.heads * plan.head_dim;
  const int group = plan.heads / plan.kv_heads;
  const int64_t stride = DimStride(plan.head_dim);
  const AttentionState& total = worker->attention.total();
  float* partial = split.partials;
  float* to = worker->row.data();
  for (int head = 0; head < plan.kv_heads; ++head) {
    ClearState(group, stride, total);
    for (int64_t i = 0; i < split.pieces; ++i) {
      attention_kernels_.merge(PlaceState(partial, group, stride), group, stride, total);
      partial += StateFloats(group, stride);
    }
    for (int g = 0; g < group; ++g) {
      attention_kernels_.finish(total, g, stride, plan.head_dim, to);
      to += plan.head_dim;
    }
  }
  return worker->row.data();
}

}  // namespace tokend::cpu
