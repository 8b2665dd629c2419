#ifndef TOKEND_TESTS_SUPPORT_BACKEND_CHECKS_H_
#define TOKEND_TESTS_SUPPORT_BACKEND_CHECKS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "core/ops/backend.h"
#include "core/ops/step.h"
#include "tests/support/paged_runner.h"
#include "tests/support/random_model.h"

namespace tokend::testing {

// A backend with an arena that is poisoned wherever no step may read.
struct BackendRig {
  std::vector<float> Run(absl::Span<const int32_t> tokens, int64_t chunk,
                         const ops::AttentionMask& mask = {});
  // In steps of those sizes, the last one again and again.
  std::vector<float> RunCut(absl::Span<const int32_t> tokens, absl::Span<const int64_t> steps,
                            const ops::AttentionMask& mask = {});

  std::unique_ptr<ops::Backend> backend;
  std::unique_ptr<PagedRunner> runner;
  int page_tokens = 16;
};

// What 40_numerics asks of every backend: a row's bits depend on its own sequence
// alone. `rig` runs `model`.
void CheckChunks(BackendRig* rig, const RandomModel& model, int64_t tokens,
                 absl::Span<const std::vector<int64_t>> cuts);
// One sequence among `others` sequences that are fed unevenly.
void CheckNeighbours(BackendRig* rig, const RandomModel& model, int64_t tokens, int others);
// A fork: the partial last page is copied, full pages are shared.
void CheckCopiedPages(BackendRig* rig, const RandomModel& model);

// Logits of every position, by ops::ReferenceModel.
std::vector<double> ReferenceLogits(const RandomModel& model, absl::Span<const int32_t> tokens,
                                    const ops::AttentionMask& mask = {});

// Largest difference as a share of the standard deviation of `want`; infinite if an
// element of `got` is not finite.
double LargestError(absl::Span<const float> got, absl::Span<const double> want);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_BACKEND_CHECKS_H_
