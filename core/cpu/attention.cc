#include "core/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/ops/attention.h"

namespace tokend::cpu {
namespace {

void PointStrip(const KvArena& arena, const AttentionTask& task, int64_t position, int strip,
                PieceView* view) {
  const KvLayout& layout = arena.layout();
  const base::PageId page = ops::FindPage(*task.layer, position / layout.page_tokens);
  TOKEND_CHECK(static_cast<int64_t>(page) >= 0 && static_cast<int64_t>(page) < arena.pages());
  const int64_t slot = position % layout.page_tokens;
  const int64_t half = static_cast<int64_t>(page) * layout.half_page_bytes();
  const int64_t head = half + task.kv_head * layout.head_bytes();
  view->keys[strip] = arena.keys() + head + slot * layout.element_bytes();
  view->values[strip] = arena.values() + head + slot * layout.head_dim * layout.element_bytes();
  if (!layout.scaled()) return;
  const int64_t scales = half + layout.scale_offset(task.kv_head) + slot * 2;
  view->key_scales[strip] = reinterpret_cast<const uint16_t*>(arena.keys() + scales);
  view->value_scales[strip] = reinterpret_cast<const uint16_t*>(arena.values() + scales);
}

PieceView View(const KvArena& arena, const AttentionTask& task, int64_t piece) {
  const ops::AttentionMask& mask = task.layer->mask;
  const int64_t start = piece * kPieceTokens;
  const int64_t last = task.position + task.rows - 1;
  auto relative = [&](int64_t position) {
    return static_cast<int>(std::clamp<int64_t>(position - start, 0, kPieceTokens));
  };
  PieceView view = {};
  view.dtype = arena.layout().dtype;
  view.head_dim = arena.layout().head_dim;
  view.key_stride = arena.layout().page_tokens;
  const ops::LayerKv& layer = *task.layer;
  view.sink_end = relative(std::min(std::max(mask.SinkEnd(), layer.hidden_begin), last + 1));
  view.sink_begin = std::min(view.sink_end, relative(mask.SinkBegin(task.position)));
  view.end = relative(last + 1);
  view.begin = std::max(view.sink_end,
                        relative(std::max(mask.WindowBegin(task.position), layer.hidden_end)));
  for (int strip = 0; strip < kPieceStrips; ++strip) {
    const int from = strip * kStripTokens;
    const bool in_window =
        view.begin < view.end && from < view.end && from + kStripTokens > view.begin;
    const bool in_sinks = view.sink_begin < view.sink_end && from < view.sink_end &&
                          from + kStripTokens > view.sink_begin;
    const int64_t page = (start + from) / arena.layout().page_tokens;
    if (layer.kept_pages > 0 &&
        std::binary_search(layer.kept, layer.kept + layer.kept_pages, page)) {
      view.kept |= 1u << strip;
    }
    const bool is_kept = (view.kept >> strip & 1) != 0;
    if (in_sinks || in_window || is_kept) PointStrip(arena, task, start + from, strip, &view);
  }
  return view;
}

QueryTile Tile(const AttentionTask& task, int64_t piece) {
  return {task.rows,
          task.group,
          task.position - piece * kPieceTokens,
          task.layer->mask.window_tokens,
          task.layer->mask.sink_reach,
          task.query,
          task.sink_query,
          task.soft_cap};
}

}  // namespace

VisiblePieces::VisiblePieces(const ops::AttentionMask& mask, int64_t first, int64_t last) {
  const int64_t sinks = std::min(mask.SinkEnd(), last + 1);
  sink_begin_ = mask.SinkBegin(first) / kPieceTokens;
  const int64_t sink_end = mask.SeesSinks(first) ? (sinks + kPieceTokens - 1) / kPieceTokens : 0;
  sink_pieces_ = std::max<int64_t>(0, sink_end - sink_begin_);
  begin_ = std::max(sink_end, mask.WindowBegin(first) / kPieceTokens);
  end_ = std::max(begin_, last / kPieceTokens + 1);
}

absl::StatusOr<AttentionWorkspace> AttentionWorkspace::Create(int queries, int head_dim) {
  AttentionWorkspace workspace;
  const int64_t stride = DimStride(head_dim);
  const int64_t sizes[] = {int64_t{kPieceTokens} * head_dim,
                           kPieceTokens * stride,
                           2 * kPieceTokens,
                           int64_t{queries} * kPieceTokens,
                           int64_t{queries} * kPieceTokens,
                           StateFloats(queries, stride),
                           StateFloats(queries, stride),
                           int64_t{queries} * head_dim,
                           int64_t{queries} * head_dim};
  constexpr int64_t kAlignFloats = 16;
  int64_t total = 0;
  for (const int64_t size : sizes) total += (size + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  TOKEND_ASSIGN_OR_RETURN(workspace.memory_,
                          HugeBuffer::Allocate(total * static_cast<int64_t>(sizeof(float))));
  auto* next = reinterpret_cast<float*>(workspace.memory_.data());
  int index = 0;
  auto take = [&] {
    float* at = next;
    next += (sizes[index++] + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
    return at;
  };
  AttentionScratch& scratch = workspace.scratch_;
  scratch.dim_stride = stride;
  scratch.keys = take();
  scratch.values = take();
  scratch.scales = take();
  scratch.scores = take();
  scratch.sink_scores = take();
  workspace.piece_ = PlaceState(take(), queries, stride);
  workspace.total_ = PlaceState(take(), queries, stride);
  workspace.query_ = take();
  workspace.sink_query_ = take();
  return workspace;
}

int64_t StateFloats(int64_t queries, int64_t dim_stride) { return queries * (dim_stride + 2); }

AttentionState PlaceState(float* memory, int64_t queries, int64_t dim_stride) {
  AttentionState state;
  state.out = memory;
  state.max = memory + queries * dim_stride;
  state.sum = state.max + queries;
  return state;
}

void ClearState(int64_t queries, int64_t dim_stride, const AttentionState& state) {
  std::fill_n(state.max, queries, -INFINITY);
  std::fill_n(state.sum, queries, 0.0f);
  std::fill_n(state.out, queries * dim_stride, 0.0f);
}

void AttendPiece(const AttentionKernels& kernels, const KvArena& arena, const AttentionTask& task,
                 int64_t piece, const AttentionWorkspace& workspace, const AttentionState& result) {
  kernels.attend_piece(View(arena, task, piece), Tile(task, piece), workspace.scratch(), result);
}

void AttendAll(const AttentionKernels& kernels, const KvArena& arena, const AttentionTask& task,
               const AttentionWorkspace& workspace) {
  const int queries = task.rows * task.group;
  const int64_t stride = workspace.scratch().dim_stride;
  const VisiblePieces pieces(task.layer->mask, task.position, task.position + task.rows - 1);
  ClearState(queries, stride, workspace.total());
  for (int64_t i = 0; i < pieces.size(); ++i) {
    AttendPiece(kernels, arena, task, pieces[i], workspace, workspace.piece());
    kernels.merge(workspace.piece(), queries, stride, workspace.total());
  }
}

void Weigh(const AttentionKernels& kernels, const KvArena& arena, const AttentionTask& task,
           const AttentionWorkspace& workspace) {
  const ops::LayerKv& layer = *task.layer;
  TOKEND_CHECK(task.sink_query == nullptr);
  const VisiblePieces pieces(layer.mask, task.position, task.position + task.rows - 1);
  for (int64_t i = 0; i < pieces.size(); ++i) {
    const int64_t piece = pieces[i];
    int64_t weights[kPieceStrips] = {};
    kernels.weigh_piece(View(arena, task, piece), Tile(task, piece), workspace.scratch(),
                        workspace.total(), weights);
    for (int strip = 0; strip < kPieceStrips; ++strip) {
      if (weights[strip] == 0) continue;
      const int64_t position = piece * kPieceTokens + strip * kStripTokens;
      const int32_t entry = ops::FindEntry(layer, position / arena.layout().page_tokens);
      // Other heads and rows are at work on the same pages; whole numbers add up alike
      // in any order.
      std::atomic_ref<int64_t>(layer.scores[entry])
          .fetch_add(weights[strip], std::memory_order_relaxed);
    }
  }
}

}  // namespace tokend::cpu
