#ifndef TOKEND_CUDA_KERNELS_BACKEND_CUDA_BACKEND_H_
#define TOKEND_CUDA_KERNELS_BACKEND_CUDA_BACKEND_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/ops/backend.h"
#include "core/ops/check_step.h"
#include "cuda_kernels/backend/create.h"
#include "cuda_kernels/backend/device_model.h"
#include "cuda_kernels/backend/forward_pass.h"
#include "cuda_kernels/backend/step_tables.h"
#include "cuda_kernels/backend/workspace.h"
#include "cuda_kernels/runtime/buffer.h"
#include "cuda_kernels/runtime/graph.h"
#include "cuda_kernels/runtime/step_timer.h"
#include "cuda_kernels/runtime/stream.h"

namespace tokend::cuda {

// See ops/backend.h and create.h. Heavy hitters' tables are refused.
class CudaBackend final : public ops::Backend {
 public:
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(const ops::ModelPlan& plan,
                                                             const CudaBackendOptions& options);

  ops::BackendInfo info() const override;
  absl::Status AllocateArena(int64_t pages) override;
  absl::Status Submit(const ops::StepBatch& batch) override;
  absl::StatusOr<ops::StepOutput> Collect() override;
  absl::Status CopyPages(absl::Span<const ops::PageCopy> copies) override;

  // For tests, which poison what no step may read.
  unsigned char* arena() const { return arena_.as<unsigned char>(); }
  // Of the last step that drew one sequence's token; empty without
  // CudaBackendOptions::profile.
  absl::StatusOr<std::vector<PartTime>> DecodeParts() const { return timer_.Read(); }

 private:
  // Decode steps of up to so many rows share a graph.
  static constexpr std::array<int, 6> kBatchClasses = {1, 2, 4, 8, 16, 32};
  static constexpr int kStepsInFlight = 2;
  // Pages that one launch copies.
  static constexpr int64_t kCopyBatch = 256;

  CudaBackend(const CudaBackendOptions& options, const KvLayout& kv, const StepLimits& limits)
      : options_(options), kv_(kv), writer_(limits) {}
  // Mode f32: activations are pairs of f16.
  bool pair() const { return options_.activations == base::Activations::kF32; }
  absl::Status Load(const ops::ModelPlan& plan);
  ops::StepLimits Limits() const;
  // Sets free_bytes_ to what an arena may take.
  absl::Status MeasureFreeMemory();
  absl::Status Rehearse();
  absl::Status UseArena(int64_t pages);
  ForwardPass::Parts Parts() const;
  absl::Status CaptureGraphs();
  absl::StatusOr<Graph> CaptureGraph(int rows, bool draw);
  // The host's side of a step in flight, all of it pinned.
  struct Slot {
    PinnedBuffer tables;   // StepTableWriter
    PinnedBuffer draws;    // [kMaxCudaSequences] SamplingRow
    PinnedBuffer logits;   // [rows, vocabulary_size]
    PinnedBuffer tokens;   // [rows]
    PinnedBuffer counter;  // saturations
    Event done;            // its outputs have arrived
    ops::StepOutput output;
  };
  absl::Status MakeSlot(Slot* slot);
  // Host memory for what the step gives.
  absl::Status ReserveOutput(const ops::StepBatch& batch, Slot* slot);
  // Starts the step that the slot's tables describe, with what brings its output there.
  absl::Status RunStep(const StepShape& shape, const ops::StepBatch& batch, const Slot& slot);
  // Logit rows [first, first + count) of the step, through a graph or launch by launch.
  absl::Status SendDraws(const ops::StepBatch& batch, int first, int count, const Slot& slot);
  absl::Status ReadRows(const ops::StepBatch& batch, int first, int count, const Slot& slot);
  absl::Status CopyBatch(absl::Span<const ops::PageCopy> copies);

  const CudaBackendOptions options_;
  const KvLayout kv_;
  StepTableWriter writer_;
  Stream stream_;
  std::unique_ptr<DeviceModel> model_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<ForwardPass> pass_;
  DeviceBuffer arena_;
  int64_t pages_ = 0;
  StepTimer timer_;  // before the graph that records its events
  std::array<Graph, kBatchClasses.size()> logit_graphs_;
  std::array<Graph, kBatchClasses.size()> draw_graphs_;

  std::array<Slot, kStepsInFlight> slots_;
  int64_t submitted_ = 0;  // steps
  int64_t collected_ = 0;
  int64_t draws_before_ = 0;  // of the step submitted last, which are on the device
  PinnedBuffer host_copies_;  // [2, kCopyBatch] page ids
  DeviceBuffer copies_;       // the same
  int64_t free_bytes_ = -1;   // as in ops::BackendInfo
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_BACKEND_CUDA_BACKEND_H_
