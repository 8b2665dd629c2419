#ifndef TOKEND_CORE_OPS_BACKEND_H_
#define TOKEND_CORE_OPS_BACKEND_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/ops/step.h"

namespace tokend::ops {

struct BackendInfo {
  std::string device;           // "cpu (avx512_vnni, 2 threads)"
  int64_t page_bytes = 0;       // of one page: K and V of page_tokens positions, scales included
  int64_t weight_bytes = 0;     // as repacked
  int64_t workspace_bytes = 0;  // everything else that the backend holds
  int64_t huge_page_bytes = 0;  // of the weights, what the system backs with huge pages
  // What the device has left for the arena; negative: it lies in the host's memory.
  int64_t free_bytes = -1;
  bool draws_tokens = false;  // knows StepBatch::draws
  bool fills_scores = true;   // false: LayerKv::scores must be nullptr, nothing hidden
  int steps_in_flight = 1;    // submitted and not yet collected, at most
};

// Runs a model on a device. Owns the device's memory: weights, workspace and the
// page arena. The host's page tables are the truth about what a page holds.
//
// The logits of a row depend only on its own sequence's tokens, masks and the
// model: never on other sequences, on how a prompt was cut into steps, or on
// where its pages lie. Only rows that a mask reaches are read.
//
// Steps and copies of pages take effect in the order of the calls, whether or not a
// step was collected meanwhile.
//
// One thread, the engine's, calls everything but info(). Failures are INTERNAL
// with kBackendFailed; after one the backend is not used again.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual BackendInfo info() const = 0;

  // Takes memory for `pages` pages, once, before the first step.
  // RESOURCE_EXHAUSTED if it is not there.
  virtual absl::Status AllocateArena(int64_t pages) = 0;

  // Starts a step of at most the max_batch_tokens and max_sequences that it was
  // created with. What `batch` points to is not read any more once this returns, but
  // LayerKv::scores, which are there until the step is collected.
  virtual absl::Status Submit(const StepBatch& batch) = 0;
  // Waits for the oldest step that was submitted and not collected.
  virtual absl::StatusOr<StepOutput> Collect() = 0;
  // Both, where no other step is in flight.
  absl::StatusOr<StepOutput> Forward(const StepBatch& batch) {
    if (absl::Status submitted = Submit(batch); !submitted.ok()) return submitted;
    return Collect();
  }

  virtual absl::Status CopyPages(absl::Span<const PageCopy> copies) = 0;
};

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_BACKEND_H_
