// ops/attention.h over the pages of a KvArena.
#ifndef TOKEND_CORE_CPU_ATTENTION_H_
#define TOKEND_CORE_CPU_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/cpu/attention_kernels.h"
#include "core/cpu/cpu_features.h"
#include "core/cpu/huge_pages.h"
#include "core/cpu/kv_arena.h"
#include "core/ops/step.h"

namespace tokend::cpu {

// Pieces of kPieceTokens positions that the mask of positions [first, last] can
// see, in index order: those with sinks, then those of the window.
class VisiblePieces {
 public:
  VisiblePieces(const ops::AttentionMask& mask, int64_t first, int64_t last);

  int64_t size() const { return sink_pieces_ + end_ - begin_; }
  // Index of the i-th piece; it starts at position index * kPieceTokens.
  int64_t operator[](int64_t i) const {
    return i < sink_pieces_ ? sink_begin_ + i : begin_ + i - sink_pieces_;
  }

 private:
  int64_t sink_begin_, sink_pieces_;
  int64_t begin_, end_;  // [begin_, end_), behind the sinks' pieces
};

// Query rows of one KV head, and what they look at.
struct AttentionTask {
  const ops::LayerKv* layer;
  int kv_head;
  int group;                // query heads that share the KV head
  int64_t position;         // of the first row
  int rows;                 // rows * group <= queries of the workspace
  const float* query;       // [rows][group][head_dim], rotated, times scale * log2(e)
  const float* sink_query;  // rotated at the sink positions; nullptr: as query
  float soft_cap = 0;       // times log2(e); 0: none
};

// Memory for one worker's attention over at most `queries` queries at a time.
// Not thread-safe.
class AttentionWorkspace {
 public:
  AttentionWorkspace() = default;
  // RESOURCE_EXHAUSTED if there is no memory.
  static absl::StatusOr<AttentionWorkspace> Create(int queries, int head_dim);

  const AttentionScratch& scratch() const { return scratch_; }
  const AttentionState& piece() const { return piece_; }
  const AttentionState& total() const { return total_; }
  float* query() const { return query_; }            // [queries][head_dim]
  float* sink_query() const { return sink_query_; }  // [queries][head_dim]
  int64_t size_bytes() const { return memory_.size(); }

 private:
  AttentionScratch scratch_ = {};
  AttentionState piece_ = {};
  AttentionState total_ = {};
  float* query_ = nullptr;
  float* sink_query_ = nullptr;
  HugeBuffer memory_;
};

// Floats of a state of `queries` queries, as PlaceState lays it out.
int64_t StateFloats(int64_t queries, int64_t dim_stride);
AttentionState PlaceState(float* memory, int64_t queries, int64_t dim_stride);

inline int64_t DimStride(int head_dim) { return (head_dim + 15) / 16 * 16; }

// No piece merged yet.
void ClearState(int64_t queries, int64_t dim_stride, const AttentionState& state);

// The task over one piece.
void AttendPiece(const AttentionKernels& kernels, const KvArena& arena, const AttentionTask& task,
                 int64_t piece, const AttentionWorkspace& workspace, const AttentionState& result);

// The task over all pieces that it sees, merged, into workspace.total().
void AttendAll(const AttentionKernels& kernels, const KvArena& arena, const AttentionTask& task,
               const AttentionWorkspace& workspace);

// Adds to the layer's scores what the task's queries give; right after AttendAll.
void Weigh(const AttentionKernels& kernels, const KvArena& arena, const AttentionTask& task,
           const AttentionWorkspace& workspace);

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_ATTENTION_H_
