#include "core/cpu/cpu_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/cpu/cpu_features.h"
#include "core/cpu/errors.h"

namespace tokend::cpu {
namespace {

absl::Status CheckOptions(const CpuBackendOptions& options) {
  if (options.page_tokens != 16 && options.page_tokens != 32) {
    return base::InvalidField("page_tokens", "must be 16 or 32");
  }
  if (options.max_batch_tokens < 1) {
    return base::InvalidField("max_batch_tokens", "must be at least 1");
  }
  if (options.max_sequences < 1) {
    return base::InvalidField("max_sequences", "must be at least 1");
  }
  return absl::OkStatus();
}

absl::Status CheckPlan(const ops::ModelPlan& plan) {
  if (plan.head_dim < 1 || plan.head_dim > kMaxHeadDim) {
    return UnsupportedPlan(
        absl::StrCat("head size ", plan.head_dim, "; at most ", kMaxHeadDim, " are supported"));
  }
  if (plan.kv_heads < 1 || plan.heads % plan.kv_heads != 0) {
    return UnsupportedPlan(absl::StrCat(plan.heads, " heads over ", plan.kv_heads, " KV heads"));
  }
  if (plan.rope.dims % 2 != 0 || plan.rope.dims < 0 || plan.rope.dims > plan.head_dim) {
    return UnsupportedPlan(
        absl::StrCat("rope over ", plan.rope.dims, " of ", plan.head_dim, " dimensions"));
  }
  return absl::OkStatus();
}

KvLayout Layout(const ops::ModelPlan& plan, base::KvDtype kv_dtype, int page_tokens) {
  return {kv_dtype, page_tokens, plan.kv_heads, plan.head_dim};
}

}  // namespace

int64_t CpuBackend::PageBytes(const ops::ModelPlan& plan, base::KvDtype kv_dtype, int page_tokens) {
  return Layout(plan, kv_dtype, page_tokens).page_bytes();
}

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(const ops::ModelPlan& plan,
                                                               const CpuBackendOptions& options) {
  TOKEND_RETURN_IF_ERROR(CheckOptions(options));
  TOKEND_RETURN_IF_ERROR(CheckPlan(plan));
  TOKEND_ASSIGN_OR_RETURN(const Isa isa, ChooseIsa(options.isa));
  auto backend = std::unique_ptr<CpuBackend>(
      new CpuBackend(options, isa, Layout(plan, options.kv_dtype, options.page_tokens)));
  ThreadPoolOptions pool;
  pool.threads = options.threads;
  pool.pin = options.pin_threads;
  TOKEND_ASSIGN_OR_RETURN(backend->pool_, ThreadPool::Create(pool));
  TOKEND_ASSIGN_OR_RETURN(PackedModel model,
                          PackedModel::Create(plan, backend->pool_.get(), options.progress));
  backend->model_ = std::make_unique<const PackedModel>(std::move(model));
  TOKEND_ASSIGN_OR_RETURN(backend->pass_,
                          ForwardPass::Create(backend->model_.get(), backend->pool_.get(), isa,
                                              {options.activations, options.max_batch_tokens,
                                               options.max_sequences, options.profile}));
  return backend;
}

ops::BackendInfo CpuBackend::info() const {
  ops::BackendInfo info;
  const int threads = pool_->threads();
  info.device =
      absl::StrCat("cpu (", IsaName(isa_), ", ", threads, threads == 1 ? " thread)" : " threads)");
  info.page_bytes = layout_.page_bytes();
  info.weight_bytes = model_->weight_bytes();
  info.workspace_bytes = pass_->workspace_bytes();
  info.huge_page_bytes = model_->HugePageBytes();
  return info;
}

absl::Status CpuBackend::AllocateArena(int64_t pages) {
  if (arena_.pages() > 0) return BadStep("the arena is there already");
  TOKEND_ASSIGN_OR_RETURN(arena_, KvArena::Create(layout_, pages));
  return absl::OkStatus();
}

absl::Status CpuBackend::CheckBatch(const ops::StepBatch& batch) const {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  if (arena_.pages() == 0) return BadStep("no arena yet");
  if (rows < 1 || rows > options_.max_batch_tokens) {
    return BadStep(absl::StrCat(rows, " rows of at most ", options_.max_batch_tokens));
  }
  if (static_cast<int64_t>(batch.sequences.size()) > options_.max_sequences) {
    return BadStep(
        absl::StrCat(batch.sequences.size(), " sequences of at most ", options_.max_sequences));
  }
  for (const int32_t token : batch.tokens) {
    if (token < 0 || token >= model_->plan().vocabulary_size) {
      return BadStep(absl::StrCat("token ", token));
    }
  }
  return CheckSequences(batch);
}

absl::Status CpuBackend::CheckSequences(const ops::StepBatch& batch) const {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  int64_t next = 0;
  size_t logit_row = 0;
  int64_t last = -1;
  for (const ops::StepSequence& sequence : batch.sequences) {
    if (sequence.first_row != next || sequence.rows < 1 || sequence.position < 0 ||
        sequence.layers.size() != model_->layers().size()) {
      return BadStep(absl::StrCat("the sequence at row ", next));
    }
    next += sequence.rows;
    int64_t attend_begin = 0;
    for (const ops::LayerKv& layer : sequence.layers) {
      if (layer.attend_begin < attend_begin) return BadStep("attend_begin falls");
      attend_begin = layer.attend_begin;
    }
    for (; logit_row < batch.logit_rows.size() && batch.logit_rows[logit_row] < next; ++logit_row) {
      const int64_t row = batch.logit_rows[logit_row];
      if (row <= last || sequence.position + row - sequence.first_row < attend_begin) {
        return BadStep(absl::StrCat("logits of row ", row));
      }
      last = row;
    }
  }
  if (next != rows) return BadStep(absl::StrCat("sequences cover ", next, " of ", rows, " rows"));
  if (logit_row < batch.logit_rows.size()) {
    return BadStep(absl::StrCat("logits of row ", batch.logit_rows[logit_row]));
  }
  return absl::OkStatus();
}

absl::StatusOr<ops::StepOutput> CpuBackend::Forward(const ops::StepBatch& batch) {
  TOKEND_RETURN_IF_ERROR(CheckBatch(batch));
  ops::StepOutput output;
  TOKEND_ASSIGN_OR_RETURN(output.logits, pass_->Run(batch, arena_));
  return output;
}

absl::Status CpuBackend::CopyPages(absl::Span<const ops::PageCopy> copies) {
  for (const ops::PageCopy& copy : copies) {
    for (const base::PageId page : {copy.from, copy.to}) {
      const auto id = static_cast<int64_t>(page);
      if (id < 0 || id >= arena_.pages()) return BadStep(absl::StrCat("copy of page ", id));
    }
    if (copy.rows < 0 || copy.rows > layout_.page_tokens) {
      return BadStep(absl::StrCat("copy of ", copy.rows, " rows"));
    }
    arena_.CopyRows(copy);
  }
  return absl::OkStatus();
}

}  // namespace tokend::cpu
