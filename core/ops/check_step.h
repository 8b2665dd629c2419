#ifndef TOKEND_CORE_OPS_CHECK_STEP_H_
#define TOKEND_CORE_OPS_CHECK_STEP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/ops/step.h"

namespace tokend::ops {

// What a backend was created for.
struct StepLimits {
  int64_t vocabulary_size = 0;
  int64_t layers = 0;
  int64_t max_batch_tokens = 0;
  int64_t max_sequences = 0;
  int64_t pages = 0;  // of the arena; 0: there is none yet
  int page_tokens = 0;
  int64_t positions = 0;     // that the model has an embedding for; 0: it has none of them
  int64_t draws_before = 0;  // of the step before, that a row's token may name
};

// INTERNAL, kBackendFailed: a step or a copy that breaks its contract.
absl::Status BadStep(absl::string_view problem);

// BadStep, naming what is wrong, for a batch that does not keep to step.h and the
// limits. Page tables are not read.
absl::Status CheckStep(const StepBatch& batch, const StepLimits& limits);
absl::Status CheckCopies(absl::Span<const PageCopy> copies, const StepLimits& limits);

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_CHECK_STEP_H_
