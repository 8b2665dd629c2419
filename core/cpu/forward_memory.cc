// The memory of a ForwardPass.
#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/base/status_macros.h"
#include "core/cpu/forward_pass.h"
#include "core/cpu/forward_worker.h"

namespace tokend::cpu {
namespace {

constexpr int64_t kFloat = sizeof(float);

// States of single pieces, for a few rows at a long context; rows that find no
// room are not split.
constexpr int64_t kMaxPartialFloats = int64_t{16} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<ForwardPass>> ForwardPass::Create(
    const PackedModel* model, ThreadPool* pool, Isa isa, const ForwardPassOptions& options) {
  auto pass = std::unique_ptr<ForwardPass>(new ForwardPass(model, pool, isa, options));
  TOKEND_RETURN_IF_ERROR(pass->Allocate());
  return pass;
}

// The output layer's rounding errors land in the logits themselves, while its few
// rows cost no speed: memory binds there. So it never goes below two terms.
base::Activations ForwardPass::InputMode(Input input) const {
  return input == kOutputInput && options_.activations == base::Activations::kInt8
             ? base::Activations::kInt16
             : options_.activations;
}

absl::Status ForwardPass::AllocateInputs(int64_t rows,
                                         std::array<MatmulInput, kInputs>* inputs) const {
  std::array<std::vector<const PackedMatrix*>, kInputs> readers;
  for (const PackedLayer& layer : model_.layers()) {
    for (const PackedLinear* linear :
         {&layer.query, &layer.key, &layer.value, &layer.gate, &layer.up}) {
      if (linear->matrix.rows() > 0) readers[kWidthInput].push_back(&linear->matrix);
    }
    readers[kHeadsInput].push_back(&layer.attention_output.matrix);
    readers[kFfnInput].push_back(&layer.down.matrix);
  }
  readers[kOutputInput].push_back(&model_.output().matrix);
  for (size_t i = 0; i < kInputs; ++i) {
    TOKEND_ASSIGN_OR_RETURN((*inputs)[i], MatmulInput::Create(InputMode(static_cast<Input>(i)),
                                                              readers[i], rows, isa_));
  }
  return absl::OkStatus();
}

bool ForwardPass::AddsLater() const {
  for (const PackedLayer& layer : model_.layers()) {
    if (AddsLater(layer.post_attention_norm) || AddsLater(layer.post_ffn_norm)) return true;
  }
  return false;
}

absl::Status ForwardPass::Allocate() {
  const ops::ModelPlan& plan = model_.plan();
  const int64_t rows = options_.max_batch_tokens;
  const int64_t heads_width = int64_t{plan.heads} * plan.head_dim;
  constexpr int64_t kAlignFloats = 16;
  auto rounded = [](int64_t floats) {
    return (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  };
  const int64_t sizes[] = {rounded(rows * plan.width), rounded(rows * qkv_stride_),
                           rounded(rows * heads_width), rounded(rows * plan.ffn_width),
                           AddsLater() ? rounded(rows * plan.width) : 0};
  TOKEND_ASSIGN_OR_RETURN(
      buffers_, HugeBuffer::Allocate(
                    kFloat * std::accumulate(std::begin(sizes), std::end(sizes), int64_t{0})));
  x_ = reinterpret_cast<float*>(buffers_.data());
  qkv_ = x_ + sizes[0];
  attended_ = qkv_ + sizes[1];
  hidden_ = attended_ + sizes[2];
  product_ = hidden_ + sizes[3];
  TOKEND_RETURN_IF_ERROR(ReserveLogits(options_.max_sequences));
  TOKEND_RETURN_IF_ERROR(AllocateInputs(rows, &inputs_));

  const int group = plan.heads / plan.kv_heads;
  const int64_t pieces = plan.context_tokens / kPieceTokens + 2;
  const int64_t partials =
      std::min(kMaxPartialFloats, kSplitUnitsPerThread * pool_.threads() * pieces *
                                      StateFloats(group, DimStride(plan.head_dim)));
  TOKEND_ASSIGN_OR_RETURN(partials_, HugeBuffer::Allocate(kFloat * partials));

  const int queries = std::max(1, kTileQueries / group) * group;
  const int64_t widest = std::max({plan.width, heads_width, plan.ffn_width});
  for (int i = 0; i < pool_.threads(); ++i) {
    auto worker = std::make_unique<Worker>();
    TOKEND_ASSIGN_OR_RETURN(worker->attention, AttentionWorkspace::Create(queries, plan.head_dim));
    TOKEND_RETURN_IF_ERROR(AllocateInputs(kPrivateRows, &worker->inputs));
    worker->row.resize(static_cast<size_t>(widest));
    constexpr size_t kScratch = kRowsPerChunk * kPanelOutputs;
    worker->scratch_memory.resize(2 * kScratch);
    worker->scratch = {worker->scratch_memory.data(), worker->scratch_memory.data() + kScratch};
    workers_.push_back(std::move(worker));
  }
  return absl::OkStatus();
}

absl::Status ForwardPass::ReserveLogits(int64_t rows) {
  const int64_t bytes = kFloat * rows * model_.plan().vocabulary_size;
  if (bytes <= logits_.size()) return absl::OkStatus();
  TOKEND_ASSIGN_OR_RETURN(logits_, HugeBuffer::Allocate(bytes));
  return absl::OkStatus();
}

int64_t ForwardPass::workspace_bytes() const {
  int64_t bytes = buffers_.size() + logits_.size() + partials_.size();
  for (const MatmulInput& input : inputs_) bytes += input.size_bytes();
  for (const std::unique_ptr<Worker>& worker : workers_) {
    bytes += worker->attention.size_bytes();
    for (const MatmulInput& input : worker->inputs) bytes += input.size_bytes();
    bytes += static_cast<int64_t>(worker->row.size() + worker->scratch_memory.size()) * kFloat;
  }
  return bytes;
}

}  // namespace tokend::cpu
