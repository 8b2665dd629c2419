#ifndef TOKEND_CORE_CPU_FORWARD_PASS_H_
#define TOKEND_CORE_CPU_FORWARD_PASS_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/dtype.h"
#include "core/cpu/attention.h"
#include "core/cpu/cpu_features.h"
#include "core/cpu/huge_pages.h"
#include "core/cpu/kv_arena.h"
#include "core/cpu/matmul_input.h"
#include "core/cpu/packed_model.h"
#include "core/cpu/panel_work.h"
#include "core/cpu/rope_angles.h"
#include "core/cpu/thread_pool.h"
#include "core/cpu/vector_kernels.h"
#include "core/ops/step.h"

namespace tokend::cpu {

enum class Phase {
  kEmbed,
  kPrepare,  // norms and quantisation of many rows; few rows do it in the next phase
  kQkv,
  kStoreKv,
  kAttention,
  kAttentionOutput,
  kGateUp,
  kDown,
  kAddProduct,  // norms of a half block's output
  kLogits,
  kCount,
};

// Nanoseconds since creation, by kind of phase; zeros unless asked for.
struct StepProfile {
  std::array<int64_t, static_cast<size_t>(Phase::kCount)> nanos = {};
  int64_t operator[](Phase phase) const { return nanos[static_cast<size_t>(phase)]; }
};

struct ForwardPassOptions {
  base::Activations activations = base::Activations::kInt16;
  int64_t max_batch_tokens = 1;
  int64_t max_sequences = 1;
  bool profile = false;
};

// One step through a packed model: embedding, blocks, logits. Holds the memory
// of a step. One thread at a time.
class ForwardPass {
 public:
  // `model` and `pool` outlive it. RESOURCE_EXHAUSTED if there is no memory.
  static absl::StatusOr<std::unique_ptr<ForwardPass>> Create(const PackedModel* model,
                                                             ThreadPool* pool, Isa isa,
                                                             const ForwardPassOptions& options);
  ~ForwardPass();

  // Logits of batch.logit_rows, [logit_rows.size(), vocabulary_size], good until
  // the next call. Writes the KV of the batch's rows to `arena`. The batch keeps
  // to ops/step.h and the options' limits. RESOURCE_EXHAUSTED if more rows of
  // logits than ever before find no memory.
  absl::StatusOr<absl::Span<const float>> Run(const ops::StepBatch& batch, const KvArena& arena);

  int64_t workspace_bytes() const;
  const StepProfile& profile() const { return profile_; }

 private:
  // What one thread has to itself.
  struct Worker;
  // One call of the attention kernels: rows of one sequence and one KV head.
  struct Unit {
    const ops::StepSequence* sequence;
    int32_t row;      // first, of the step
    int32_t out_row;  // first, of the result
    int32_t rows;
    int kv_head;
    int64_t piece;   // -1: all that the rows see
    float* partial;  // state of `piece`
  };
  // Rows of the step that the layer at work attends for, and where they go.
  struct RowSpan {
    const ops::StepSequence* sequence;
    int32_t row;
    int32_t out_row;
    int32_t rows;
  };
  // A row whose pieces are units of their own; states [kv_heads][pieces].
  struct SplitRow {
    float* partials = nullptr;  // nullptr: not split
    int64_t pieces = 0;
  };
  struct FewRowsJob;
  enum Input { kWidthInput, kHeadsInput, kFfnInput, kOutputInput, kInputs };
  using PrepareRow = absl::FunctionRef<void(int64_t row, Worker* worker, MatmulInput* to)>;
  using Time = std::chrono::steady_clock::time_point;

  ForwardPass(const PackedModel* model, ThreadPool* pool, Isa isa,
              const ForwardPassOptions& options);
  absl::Status Allocate();
  base::Activations InputMode(Input input) const;
  // Whether a half block's product does not go to the stream as it is.
  bool AddsLater(const ops::Norm& post_norm) const {
    return post_norm.present() || model_.plan().residual_scale != 1;
  }
  bool AddsLater() const;
  const RopeAngles& Angles(const PackedLayer& layer) const {
    return layer.rope == ops::kNoRope ? angles_.back() : angles_[static_cast<size_t>(layer.rope)];
  }
  absl::Status AllocateInputs(int64_t rows, std::array<MatmulInput, kInputs>* inputs) const;
  absl::Status ReserveLogits(int64_t rows);

  Time StartTimer() const;
  void StopTimer(Phase phase, Time start);
  void RunPhase(Phase phase, int64_t chunks, absl::FunctionRef<void(int64_t, int)> fn);
  void ForRows(Phase phase, int64_t rows, absl::FunctionRef<void(int64_t row, int worker)> fn);
  PanelWork Work(std::initializer_list<MatmulJob> jobs) const;
  // All chunks of `work` for rows [0, rows), on inputs that `prepare` sets row by row.
  void RunMatmuls(Phase phase, Input input, int64_t rows, const PanelWork& work,
                  PrepareRow prepare);
  // out = norm(x), which is present. [width]; out may be x.
  void ComputeNorm(const float* x, const ops::Norm& norm, float* out) const;
  // Row `row` of `to` = norm(row of the residual stream).
  void PrepareNorm(int64_t row, const ops::Norm& norm, Worker* worker, MatmulInput* to) const;

  void Embed(const ops::StepBatch& batch);
  void ProjectQkv(const PackedLayer& layer, int64_t rows);
  void NormHeads(const PackedLayer& layer, float* row) const;
  void StoreKv(size_t layer, int64_t rows, const KvArena& arena);
  void Attend(size_t layer, const KvArena& arena);
  void AttendUnit(const Unit& unit, size_t layer, const KvArena& arena, Worker* worker);
  void RotateQueries(const Unit& unit, size_t layer, bool sinks,
                     const AttentionWorkspace& to) const;
  void AddUnits(const RowSpan& span, const ops::LayerKv& layer, bool split);
  bool SplitRowIntoUnits(const RowSpan& span, const ops::LayerKv& layer);
  // Row `row` of the attention's result, [heads * head_dim].
  const float* AttendedRow(int64_t row, Worker* worker) const;
  // The stream x += residual_scale * post_norm(linear(input)).
  void AddProduct(Phase phase, Input input, const PackedLinear& linear, const ops::Norm& post_norm,
                  int64_t rows, PrepareRow prepare);
  void AddAttentionOutput(const PackedLayer& layer, int64_t rows);
  void ComputeHidden(const PackedLayer& layer, int64_t rows);
  void AddFeedForward(const PackedLayer& layer, int64_t rows);
  void ComputeLogits(int64_t rows);
  void CapLogits(int64_t rows);
  void StartStep(const ops::StepBatch& batch);
  // The rows of `layer` that go on behind its keys and values.
  void ChooseRows(const ops::StepBatch& batch, size_t layer);
  // Before a layer's attention: the residual stream has `kept_` alone. After the
  // layer: so has the rest of the step.
  void KeepStream();
  void KeepRows();
  void KeepLogitRows(const ops::StepBatch& batch);
  void BuildSpans();
  void RunLayer(const ops::StepBatch& batch, size_t layer, const KvArena& arena);

  const PackedModel& model_;
  ThreadPool& pool_;
  const Isa isa_;
  const ForwardPassOptions options_;
  const VectorKernels& kernels_;
  const AttentionKernels& attention_kernels_;
  const int64_t qkv_stride_;  // query, key, value of a row
  StepProfile profile_;

  HugeBuffer buffers_;
  float* x_ = nullptr;         // [max_batch_tokens][width], the residual stream
  float* qkv_ = nullptr;       // [max_batch_tokens][qkv_stride]
  float* attended_ = nullptr;  // [max_batch_tokens][heads * head_dim]
  float* hidden_ = nullptr;    // [max_batch_tokens][ffn_width]
  float* product_ = nullptr;   // [max_batch_tokens][width], where AddsLater
  HugeBuffer logits_;          // [rows][vocabulary_size] f32
  std::array<MatmulInput, kInputs> inputs_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<RopeAngles> angles_;  // of the plan's ropes, then that of no rope

  // Of the step at work: rows that still go on.
  std::vector<int32_t> step_row_;                       // [rows] in the step
  std::vector<int64_t> positions_;                      // [rows]
  std::vector<const ops::StepSequence*> row_sequence_;  // [rows]
  std::vector<int32_t> kept_;                           // of the rows, ascending
  bool rows_end_early_ = false;                         // LayerKv::attend_begin

  // Of the layer at work.
  std::vector<RowSpan> spans_;
  std::vector<Unit> units_;
  std::vector<SplitRow> split_rows_;  // [rows of the result]
  HugeBuffer partials_;               // states of units that are single pieces
  int64_t partial_floats_ = 0;        // taken of it
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_FORWARD_PASS_H_
