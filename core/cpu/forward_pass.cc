#include "core/cpu/forward_pass.h"

#include <algorithm>
#include <cstring>

#include "core/base/status_macros.h"
#include "core/cpu/forward_worker.h"
#include "core/ops/dequantize.h"

namespace tokend::cpu {
namespace {

// A chunk of a matmul: large enough to hide the hand-out, and so many of them that
// threads end together.
constexpr int64_t kChunkBytes = 24 << 10;
constexpr int64_t kChunksPerThread = 6;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

ForwardPass::ForwardPass(const PackedModel* model, ThreadPool* pool, Isa isa,
                         const ForwardPassOptions& options)
    : model_(*model),
      pool_(*pool),
      isa_(isa),
      options_(options),
      kernels_(GetVectorKernels(isa)),
      attention_kernels_(GetAttentionKernels(isa)),
      qkv_stride_((model->plan().heads + 2 * model->plan().kv_heads) *
                  int64_t{model->plan().head_dim}) {
  static const ops::Rope kNone = {};
  for (const ops::Rope& rope : model_.plan().ropes) {
    angles_.emplace_back(rope, options.max_batch_tokens);
  }
  angles_.emplace_back(kNone, options.max_batch_tokens);
}

// Late backups still read the weights and the workers' memory.
ForwardPass::~ForwardPass() { pool_.AwaitIdle(); }

ForwardPass::Time ForwardPass::StartTimer() const {
  return options_.profile ? std::chrono::steady_clock::now() : Time();
}

void ForwardPass::StopTimer(Phase phase, Time start) {
  if (!options_.profile) return;
  profile_.nanos[static_cast<size_t>(phase)] += (std::chrono::steady_clock::now() - start).count();
}

void ForwardPass::RunPhase(Phase phase, int64_t chunks, absl::FunctionRef<void(int64_t, int)> fn) {
  const Time start = StartTimer();
  pool_.RunPhase(chunks, fn);
  StopTimer(phase, start);
}

void ForwardPass::ForRows(Phase phase, int64_t rows, absl::FunctionRef<void(int64_t, int)> fn) {
  constexpr int64_t kRows = 4;
  RunPhase(phase, CeilDiv(rows, kRows), [&](int64_t chunk, int worker) {
    const int64_t end = std::min(rows, (chunk + 1) * kRows);
    for (int64_t row = chunk * kRows; row < end; ++row) fn(row, worker);
  });
}

// A matmul of few rows, with backups: every worker prepares the inputs for itself,
// which costs less than one more phase, and computes to memory of its own.
struct ForwardPass::FewRowsJob {
  const ForwardPass* pass;
  const PrepareRow* prepare;
  Input input;
  int64_t rows;
  int64_t panels_per_chunk;
  PanelWork work;

  PanelRange Range(int64_t chunk) const {
    const int64_t panel = chunk * panels_per_chunk;
    return {0, rows, panel, std::min(panel + panels_per_chunk, work.panels())};
  }
  void Load(int index) const {
    Worker* worker = pass->workers_[static_cast<size_t>(index)].get();
    for (int64_t row = 0; row < rows; ++row) (*prepare)(row, worker, &worker->inputs[input]);
  }
  void Compute(int64_t chunk, int index) const {
    const Worker& worker = *pass->workers_[static_cast<size_t>(index)];
    work.Compute(worker.inputs[input], Range(chunk), worker.scratch);
  }
  void Publish(int64_t chunk, int index) const {
    work.Publish(Range(chunk), pass->workers_[static_cast<size_t>(index)]->scratch);
  }
};

void ForwardPass::RunMatmuls(Phase phase, Input input, int64_t rows, const PanelWork& work,
                             PrepareRow prepare) {
  const int64_t panels = work.panels();
  const int64_t wanted =
      std::min(kChunkBytes / work.panel_bytes(), panels / (kChunksPerThread * pool_.threads()));
  const int64_t per_chunk = std::clamp<int64_t>(wanted, 1, kPanelsPerChunk);
  const int64_t groups = CeilDiv(panels, per_chunk);
  if (rows <= kPrivateRows) {
    const FewRowsJob job = {this, &prepare, input, rows, per_chunk, work};
    const auto start = StartTimer();
    pool_.RunPhaseWithBackups(groups, job);
    StopTimer(phase, start);
    return;
  }
  ForRows(Phase::kPrepare, rows, [&](int64_t row, int worker) {
    prepare(row, workers_[static_cast<size_t>(worker)].get(), &inputs_[input]);
  });
  RunPhase(phase, groups * CeilDiv(rows, kRowsPerChunk), [&](int64_t chunk, int worker) {
    const int64_t row = chunk / groups * kRowsPerChunk;
    const int64_t panel = chunk % groups * per_chunk;
    work.Run(inputs_[input],
             {row, std::min(rows, row + kRowsPerChunk), panel, std::min(panels, panel + per_chunk)},
             workers_[static_cast<size_t>(worker)]->scratch);
  });
}

PanelWork ForwardPass::Work(std::initializer_list<MatmulJob> jobs) const {
  PanelWork work;
  work.isa = isa_;
  for (const MatmulJob& job : jobs) work.jobs[work.count++] = job;
  return work;
}

void ForwardPass::StartStep(const ops::StepBatch& batch) {
  step_row_.clear();
  positions_.clear();
  row_sequence_.clear();
  rows_end_early_ = false;
  for (const ops::StepSequence& sequence : batch.sequences) {
    for (int32_t i = 0; i < sequence.rows; ++i) {
      step_row_.push_back(sequence.first_row + i);
      positions_.push_back(sequence.position + i);
      row_sequence_.push_back(&sequence);
    }
    rows_end_early_ = rows_end_early_ || sequence.layers.back().attend_begin > sequence.position;
  }
  kept_ = step_row_;
  BuildSpans();
  for (RopeAngles& angles : angles_) angles.StartStep(batch);
}

void ForwardPass::Embed(const ops::StepBatch& batch) {
  const ops::ModelPlan& plan = model_.plan();
  auto read = [](const ops::Matrix& table, int64_t row, float* to) {
    ops::DequantizeRowRef(table.type, table.data + row * ops::RowBytes(table),
                          absl::MakeSpan(to, static_cast<size_t>(table.cols)));
  };
  ForRows(Phase::kEmbed, static_cast<int64_t>(batch.tokens.size()), [&](int64_t row, int worker) {
    const int64_t position = positions_[static_cast<size_t>(row)];
    float* const x = x_ + row * plan.width;
    read(plan.embedding, batch.tokens[static_cast<size_t>(row)], x);
    if (plan.embedding_scale != 1) kernels_.scale_and_cap(plan.embedding_scale, 0, plan.width, x);
    if (plan.position_embedding.present()) {
      float* const own = workers_[static_cast<size_t>(worker)]->row.data();
      read(plan.position_embedding, position, own);
      kernels_.add_scaled(own, 1, plan.width, x);
    }
    for (RopeAngles& angles : angles_) angles.SetRow(row, position);
  });
}

void ForwardPass::ChooseRows(const ops::StepBatch& batch, size_t layer) {
  kept_.clear();
  const bool last = layer + 1 == model_.layers().size();
  size_t logit_row = 0;
  for (size_t i = 0; i < step_row_.size(); ++i) {
    if (!last) {
      if (positions_[i] < row_sequence_[i]->layers[layer].attend_begin) continue;
    } else if (logit_row < batch.logit_rows.size() && step_row_[i] == batch.logit_rows[logit_row]) {
      ++logit_row;
    } else if (row_sequence_[i]->layers[layer].scores == nullptr) {
      continue;
    }
    kept_.push_back(static_cast<int32_t>(i));
  }
}

void ForwardPass::KeepStream() {
  const int64_t width = model_.plan().width;
  for (size_t i = 0; i < kept_.size(); ++i) {
    std::memmove(x_ + static_cast<int64_t>(i) * width, x_ + kept_[i] * width,
                 static_cast<size_t>(width) * sizeof(float));
  }
}

void ForwardPass::KeepRows() {
  for (size_t i = 0; i < kept_.size(); ++i) {
    const auto from = static_cast<size_t>(kept_[i]);
    step_row_[i] = step_row_[from];
    positions_[i] = positions_[from];
    row_sequence_[i] = row_sequence_[from];
    kept_[i] = static_cast<int32_t>(i);
  }
  step_row_.resize(kept_.size());
  positions_.resize(kept_.size());
  row_sequence_.resize(kept_.size());
  BuildSpans();
}

// Rows that came through the last layer for their scores alone go.
void ForwardPass::KeepLogitRows(const ops::StepBatch& batch) {
  if (step_row_.size() == batch.logit_rows.size()) return;
  kept_.clear();
  for (size_t i = 0; i < step_row_.size() && kept_.size() < batch.logit_rows.size(); ++i) {
    if (step_row_[i] == batch.logit_rows[kept_.size()]) kept_.push_back(static_cast<int32_t>(i));
  }
  KeepStream();
}

void ForwardPass::BuildSpans() {
  spans_.clear();
  for (size_t i = 0; i < kept_.size(); ++i) {
    const int32_t row = kept_[i];
    const ops::StepSequence* sequence = row_sequence_[static_cast<size_t>(row)];
    if (!spans_.empty() && spans_.back().sequence == sequence &&
        spans_.back().row + spans_.back().rows == row) {
      ++spans_.back().rows;
    } else {
      spans_.push_back({sequence, row, static_cast<int32_t>(i), 1});
    }
  }
}

absl::StatusOr<absl::Span<const float>> ForwardPass::Run(const ops::StepBatch& batch,
                                                         const KvArena& arena) {
  const auto logit_rows = static_cast<int64_t>(batch.logit_rows.size());
  TOKEND_RETURN_IF_ERROR(ReserveLogits(logit_rows));
  StartStep(batch);
  Embed(batch);
  for (size_t layer = 0; layer < model_.layers().size(); ++layer) RunLayer(batch, layer, arena);
  KeepLogitRows(batch);
  if (logit_rows > 0) ComputeLogits(logit_rows);
  return absl::MakeConstSpan(reinterpret_cast<const float*>(logits_.data()),
                             static_cast<size_t>(logit_rows * model_.plan().vocabulary_size));
}

}  // namespace tokend::cpu
