#ifndef TOKEND_TESTS_GOLDEN_TINY_MODELS_H_
#define TOKEND_TESTS_GOLDEN_TINY_MODELS_H_

#include "core/ops/backend.h"
#include "tests/support/golden.h"
#include "tests/support/paged_runner.h"

namespace tokend::testing {

// Errors that a backend may show, as shares of the logits' standard deviation.
struct GoldenTolerance {
  double largest = 0;
  double root_mean_square = 0;
  // Greedy tokens are compared where the reference's best leads by more than twice
  // `largest`; else everywhere.
  bool only_clear_tokens = false;
};

// Runs every case of `golden` in chunks of `chunk` tokens on a backend of `layers`
// layers, whose arena it allocates: logits, then the greedy continuation.
void CheckGolden(const TinyModel& golden, const GoldenTolerance& tolerance, int layers,
                 int page_tokens, int64_t chunk, ops::Backend* backend);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_GOLDEN_TINY_MODELS_H_
