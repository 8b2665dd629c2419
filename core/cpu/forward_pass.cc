#include "core/cpu/forward_pass.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/base/status_macros.h"
#include "core/cpu/forward_worker.h"
#include "core/cpu/matmul.h"
#include "core/ops/dequantize.h"

namespace tokend::cpu {
namespace {

// Small enough to spread a matrix evenly, large enough to hide the hand-out.
constexpr int64_t kChunkBytes = 24 << 10;

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
                  int64_t{model->plan().head_dim}),
      angles_(model->plan().rope, options.max_batch_tokens) {}

ForwardPass::~ForwardPass() = default;

void ForwardPass::RunPhase(Phase phase, int64_t chunks, absl::FunctionRef<void(int64_t, int)> fn) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = options_.profile ? Clock::now() : Clock::time_point();
  if (chunks == 1) {
    fn(0, 0);
  } else if (chunks > 1) {
    pool_.RunPhase(chunks, fn);
  }
  if (!options_.profile) return;
  profile_.nanos[static_cast<size_t>(phase)] += (Clock::now() - start).count();
}

void ForwardPass::ForRows(Phase phase, int64_t rows, absl::FunctionRef<void(int64_t, int)> fn) {
  constexpr int64_t kRows = 4;
  RunPhase(phase, CeilDiv(rows, kRows), [&](int64_t chunk, int worker) {
    const int64_t end = std::min(rows, (chunk + 1) * kRows);
    for (int64_t row = chunk * kRows; row < end; ++row) fn(row, worker);
  });
}

void ForwardPass::ForPanels(Phase phase, Input input, int64_t rows, int64_t panels,
                            int64_t panel_bytes, PrepareRow prepare, PanelBody body) {
  const bool own_inputs = rows <= kPrivateRows;
  if (!own_inputs) {
    ForRows(Phase::kPrepare, rows, [&](int64_t row, int worker) {
      prepare(row, workers_[static_cast<size_t>(worker)].get(), &inputs_[input]);
    });
  }
  const int64_t per_chunk = std::max<int64_t>(1, kChunkBytes / panel_bytes);
  const int64_t groups = CeilDiv(panels, per_chunk);
  const int64_t phase_id = ++phase_count_;
  RunPhase(phase, groups * CeilDiv(rows, kRowsPerChunk), [&](int64_t chunk, int index) {
    Worker* worker = workers_[static_cast<size_t>(index)].get();
    if (own_inputs && worker->prepared_phase != phase_id) {
      for (int64_t row = 0; row < rows; ++row) prepare(row, worker, &worker->inputs[input]);
      worker->prepared_phase = phase_id;
    }
    const int64_t row = chunk / groups * kRowsPerChunk;
    const int64_t panel = chunk % groups * per_chunk;
    body(own_inputs ? worker->inputs[input] : inputs_[input], worker, row,
         std::min(rows, row + kRowsPerChunk), panel, std::min(panels, panel + per_chunk));
  });
}

void ForwardPass::Multiply(Phase phase, Input input, int64_t rows, absl::Span<const MatmulJob> jobs,
                           PrepareRow prepare) {
  int64_t panels = 0, bytes = 0;
  for (const MatmulJob& job : jobs) {
    panels += job.linear->matrix.panels();
    bytes += job.linear->matrix.panels() * job.linear->matrix.panel_bytes();
  }
  ForPanels(phase, input, rows, panels, bytes / panels, prepare,
            [&](const MatmulInput& in, Worker*, int64_t row_begin, int64_t row_end,
                int64_t panel_begin, int64_t panel_end) {
              int64_t first = 0;  // of the job, among all panels
              for (const MatmulJob& job : jobs) {
                const PackedMatrix& matrix = job.linear->matrix;
                const int64_t begin = std::max(panel_begin, first);
                const int64_t end = std::min(panel_end, first + matrix.panels());
                if (begin < end) {
                  MatmulPanels(isa_, matrix, in.For(matrix), row_begin, row_end, begin - first,
                               end - first, job.out, job.stride,
                               {job.linear->bias, job.accumulate});
                }
                first += matrix.panels();
              }
            });
}

void ForwardPass::StartStep(const ops::StepBatch& batch) {
  positions_.clear();
  row_sequence_.clear();
  for (const ops::StepSequence& sequence : batch.sequences) {
    for (int32_t i = 0; i < sequence.rows; ++i) {
      positions_.push_back(sequence.position + i);
      row_sequence_.push_back(&sequence);
    }
  }
  angles_.StartStep(batch);
}

void ForwardPass::Embed(const ops::StepBatch& batch) {
  const ops::Matrix& table = model_.plan().embedding;
  const int64_t row_bytes = ops::RowBytes(table);
  const auto width = static_cast<size_t>(table.cols);
  ForRows(Phase::kEmbed, static_cast<int64_t>(batch.tokens.size()), [&](int64_t row, int) {
    const int64_t token = batch.tokens[static_cast<size_t>(row)];
    ops::DequantizeRowRef(table.type, table.data + token * row_bytes,
                          absl::MakeSpan(x_ + row * table.cols, width));
    angles_.SetRow(row, positions_[static_cast<size_t>(row)]);
  });
}

void ForwardPass::ProjectQkv(const PackedLayer& layer, int64_t rows) {
  const int64_t width = model_.plan().width;
  const int64_t keys = layer.query.matrix.rows();
  const int64_t values = keys + layer.key.matrix.rows();
  const MatmulJob jobs[] = {{&layer.query, qkv_, qkv_stride_, false},
                            {&layer.key, qkv_ + keys, qkv_stride_, false},
                            {&layer.value, qkv_ + values, qkv_stride_, false}};
  Multiply(Phase::kQkv, kWidthInput, rows, jobs, [&](int64_t row, Worker* worker, MatmulInput* to) {
    float* normed = worker->row.data();
    kernels_.rms_norm(x_ + row * width, layer.attention_norm, width, model_.plan().norm_epsilon,
                      normed);
    to->SetRow(row, normed);
  });
}

void ForwardPass::AddAttentionOutput(const PackedLayer& layer, int64_t rows) {
  const MatmulJob job = {&layer.attention_output, x_, model_.plan().width, true};
  Multiply(Phase::kAttentionOutput, kHeadsInput, rows, {&job, 1},
           [&](int64_t row, Worker* worker, MatmulInput* to) {
             to->SetRow(row, AttendedRow(row, worker));
           });
}

void ForwardPass::AddFeedForward(const PackedLayer& layer, int64_t rows) {
  const int64_t width = model_.plan().width;
  const int64_t ffn = model_.plan().ffn_width;
  const PackedMatrix& gate = layer.gate.matrix;
  const PackedMatrix& up = layer.up.matrix;
  auto prepare_norm = [&](int64_t row, Worker* worker, MatmulInput* to) {
    float* normed = worker->row.data();
    kernels_.rms_norm(x_ + row * width, layer.ffn_norm, width, model_.plan().norm_epsilon, normed);
    to->SetRow(row, normed);
  };
  auto gate_up = [&](const MatmulInput& in, Worker* worker, int64_t row_begin, int64_t row_end,
                     int64_t panel_begin, int64_t panel_end) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const int64_t first = panel * kPanelOutputs;
      const int64_t outputs = std::min<int64_t>(kPanelOutputs, ffn - first);
      // Scratch holds one panel's outputs of one chunk's rows.
      const int64_t shift = row_begin * kPanelOutputs + first;
      MatmulPanels(isa_, gate, in.For(gate), row_begin, row_end, panel, panel + 1,
                   worker->gate.data() - shift, kPanelOutputs, {layer.gate.bias, false});
      MatmulPanels(isa_, up, in.For(up), row_begin, row_end, panel, panel + 1,
                   worker->up.data() - shift, kPanelOutputs, {layer.up.bias, false});
      for (int64_t row = row_begin; row < row_end; ++row) {
        const int64_t at = (row - row_begin) * kPanelOutputs;
        kernels_.swiglu(worker->gate.data() + at, worker->up.data() + at, outputs,
                        hidden_ + row * ffn + first);
      }
    }
  };
  ForPanels(Phase::kGateUp, kWidthInput, rows, gate.panels(), gate.panel_bytes() + up.panel_bytes(),
            prepare_norm, gate_up);
  const MatmulJob job = {&layer.down, x_, width, true};
  Multiply(Phase::kDown, kFfnInput, rows, {&job, 1},
           [&](int64_t row, Worker*, MatmulInput* to) { to->SetRow(row, hidden_ + row * ffn); });
}

void ForwardPass::KeepLogitRows(const ops::StepBatch& batch) {
  const int64_t width = model_.plan().width;
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    std::memmove(x_ + static_cast<int64_t>(i) * width, x_ + batch.logit_rows[i] * width,
                 static_cast<size_t>(width) * sizeof(float));
  }
}

void ForwardPass::ComputeLogits(int64_t rows) {
  const int64_t width = model_.plan().width;
  const MatmulJob job = {&model_.output(), reinterpret_cast<float*>(logits_.data()),
                         model_.plan().vocabulary_size, false};
  Multiply(Phase::kLogits, kOutputInput, rows, {&job, 1},
           [&](int64_t row, Worker* worker, MatmulInput* to) {
             float* normed = worker->row.data();
             kernels_.rms_norm(x_ + row * width, model_.output_norm(), width,
                               model_.plan().norm_epsilon, normed);
             to->SetRow(row, normed);
           });
}

// The last layer's keys and values are stored for all rows; what follows them is
// computed only for rows whose logits are wanted.
void ForwardPass::RunLayer(const ops::StepBatch& batch, size_t layer, const KvArena& arena) {
  const PackedLayer& weights = model_.layers()[layer];
  auto rows = static_cast<int64_t>(batch.tokens.size());
  ProjectQkv(weights, rows);
  StoreKv(layer, rows, arena);
  if (layer + 1 == model_.layers().size()) {
    rows = static_cast<int64_t>(batch.logit_rows.size());
    KeepLogitRows(batch);
    spans_.clear();
    for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
      const int32_t row = batch.logit_rows[i];
      const ops::StepSequence* sequence = row_sequence_[static_cast<size_t>(row)];
      if (!spans_.empty() && spans_.back().sequence == sequence &&
          spans_.back().row + spans_.back().rows == row) {
        ++spans_.back().rows;
      } else {
        spans_.push_back({sequence, row, static_cast<int32_t>(i), 1});
      }
    }
  }
  if (rows == 0) return;
  Attend(layer, arena);
  AddAttentionOutput(weights, rows);
  AddFeedForward(weights, rows);
}

absl::StatusOr<absl::Span<const float>> ForwardPass::Run(const ops::StepBatch& batch,
                                                         const KvArena& arena) {
  const auto logit_rows = static_cast<int64_t>(batch.logit_rows.size());
  TOKEND_RETURN_IF_ERROR(ReserveLogits(logit_rows));
  StartStep(batch);
  Embed(batch);
  spans_.clear();
  for (const ops::StepSequence& sequence : batch.sequences) {
    if (sequence.rows == 0) continue;
    spans_.push_back({&sequence, sequence.first_row, sequence.first_row, sequence.rows});
  }
  for (size_t layer = 0; layer < model_.layers().size(); ++layer) RunLayer(batch, layer, arena);
  if (logit_rows > 0) ComputeLogits(logit_rows);
  return absl::MakeConstSpan(reinterpret_cast<const float*>(logits_.data()),
                             static_cast<size_t>(logit_rows * model_.plan().vocabulary_size));
}

}  // namespace tokend::cpu
