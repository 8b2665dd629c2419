#ifndef TOKEND_CORE_CPU_CPU_BACKEND_H_
#define TOKEND_CORE_CPU_CPU_BACKEND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/dtype.h"
#include "core/cpu/forward_pass.h"
#include "core/cpu/kv_arena.h"
#include "core/cpu/packed_model.h"
#include "core/cpu/thread_pool.h"
#include "core/ops/backend.h"
#include "core/ops/check_step.h"
#include "core/ops/plan.h"

namespace tokend::cpu {

struct CpuBackendOptions {
  int threads = 1;
  bool pin_threads = false;
  base::Activations activations = base::Activations::kInt16;  // or kInt8, kF32
  base::KvDtype kv_dtype = base::KvDtype::kF16;
  int page_tokens = 16;  // or 32
  int64_t max_batch_tokens = 512;
  int64_t max_sequences = 32;
  std::string isa;        // see cpu_features.h; empty: the best
  bool profile = false;   // count nanoseconds by kind of phase
  PackProgress progress;  // while the weights are repacked; may be empty
};

// See ops/backend.h. Logits of more rows than max_sequences in one step take
// memory when first asked for.
class CpuBackend final : public ops::Backend {
 public:
  // Repacks the weights; afterwards of `plan` only the embedding's data is still
  // read. INVALID_ARGUMENT for options out of range, UNIMPLEMENTED for a plan
  // that it cannot run, RESOURCE_EXHAUSTED if there is no memory.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(const ops::ModelPlan& plan,
                                                            const CpuBackendOptions& options);

  // Of one page; what info().page_bytes will be.
  static int64_t PageBytes(const ops::ModelPlan& plan, base::KvDtype kv_dtype, int page_tokens);

  ops::BackendInfo info() const override;
  absl::Status AllocateArena(int64_t pages) override;
  absl::Status Submit(const ops::StepBatch& batch) override;
  absl::StatusOr<ops::StepOutput> Collect() override;
  absl::Status CopyPages(absl::Span<const ops::PageCopy> copies) override;

  // For tests, which poison what no step may read.
  KvArena* arena() { return &arena_; }
  const StepProfile& profile() const { return pass_->profile(); }

 private:
  CpuBackend(const CpuBackendOptions& options, Isa isa, KvLayout layout)
      : options_(options), isa_(isa), layout_(layout) {}
  ops::StepLimits Limits() const;

  const CpuBackendOptions options_;
  const Isa isa_;
  const KvLayout layout_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<const PackedModel> model_;
  std::unique_ptr<ForwardPass> pass_;
  KvArena arena_;
  std::optional<ops::StepOutput> output_;  // not collected yet
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_CPU_BACKEND_H_
