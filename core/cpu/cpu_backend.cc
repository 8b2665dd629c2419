#include "core/cpu/cpu_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/cpu/cpu_features.h"
#include "core/cpu/errors.h"

namespace tokend::cpu {
namespace {

absl::Status CheckOptions(const CpuBackendOptions& options) {
  if (options.activations == base::Activations::kF16) {
    return base::InvalidField("activations", "f16 is not for the CPU");
  }
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

absl::Status CheckRope(const ops::Rope& rope, int head_dim) {
  const auto pairs = static_cast<size_t>(std::max(rope.dims, 0) / 2);
  if (rope.dims % 2 == 0 && rope.dims >= 0 && rope.dims <= head_dim &&
      rope.inverse_frequencies.size() == pairs) {
    return absl::OkStatus();
  }
  return UnsupportedPlan(absl::StrCat("rope over ", rope.dims, " of ", head_dim,
                                      " dimensions with ", rope.inverse_frequencies.size(),
                                      " frequencies"));
}

absl::Status CheckPlan(const ops::ModelPlan& plan) {
  if (plan.head_dim < 1 || plan.head_dim > kMaxHeadDim) {
    return UnsupportedPlan(
        absl::StrCat("head size ", plan.head_dim, "; at most ", kMaxHeadDim, " are supported"));
  }
  if (plan.kv_heads < 1 || plan.heads % plan.kv_heads != 0) {
    return UnsupportedPlan(absl::StrCat(plan.heads, " heads over ", plan.kv_heads, " KV heads"));
  }
  for (const ops::Rope& rope : plan.ropes) {
    TOKEND_RETURN_IF_ERROR(CheckRope(rope, plan.head_dim));
  }
  for (const ops::LayerPlan& layer : plan.layers) {
    if (layer.rope < ops::kNoRope || layer.rope >= static_cast<int>(plan.ropes.size())) {
      return UnsupportedPlan(absl::StrCat("rope table ", layer.rope, " of ", plan.ropes.size()));
    }
    const bool normed = layer.query_norm != nullptr && layer.key_norm != nullptr;
    if (plan.qk_norm != ops::QkNorm::kNone && !normed) {
      return UnsupportedPlan("a layer without the norms of queries and keys");
    }
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
  if (arena_.pages() > 0) return ops::BadStep("the arena is there already");
  TOKEND_ASSIGN_OR_RETURN(arena_, KvArena::Create(layout_, pages));
  return absl::OkStatus();
}

ops::StepLimits CpuBackend::Limits() const {
  return {model_->plan().vocabulary_size,
          static_cast<int64_t>(model_->layers().size()),
          options_.max_batch_tokens,
          options_.max_sequences,
          arena_.pages(),
          layout_.page_tokens,
          model_->plan().position_embedding.rows};
}

// The calling thread computes, too: nothing is left to wait for.
absl::Status CpuBackend::Submit(const ops::StepBatch& batch) {
  if (output_.has_value()) return ops::BadStep("a step is in flight");
  TOKEND_RETURN_IF_ERROR(ops::CheckStep(batch, Limits()));
  ops::StepOutput output;
  TOKEND_ASSIGN_OR_RETURN(output.logits, pass_->Run(batch, arena_));
  output_ = output;
  return absl::OkStatus();
}

absl::StatusOr<ops::StepOutput> CpuBackend::Collect() {
  if (!output_.has_value()) return ops::BadStep("no step is in flight");
  return *std::exchange(output_, std::nullopt);
}

absl::Status CpuBackend::CopyPages(absl::Span<const ops::PageCopy> copies) {
  TOKEND_RETURN_IF_ERROR(ops::CheckCopies(copies, Limits()));
  for (const ops::PageCopy& copy : copies) arena_.CopyRows(copy);
  return absl::OkStatus();
}

}  // namespace tokend::cpu
