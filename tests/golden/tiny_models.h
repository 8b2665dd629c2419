#ifndef TOKEND_TESTS_GOLDEN_TINY_MODELS_H_
#define TOKEND_TESTS_GOLDEN_TINY_MODELS_H_

#include <cstdint>
#include <vector>

#include "core/ops/backend.h"
#include "core/ops/plan.h"
#include "core/ops/step.h"
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
  // The errors are those of a model of two layers; what more layers round adds up.
  bool grows_with_layers = false;
};

// Runs every case of `golden` in chunks of `chunk` tokens on a backend of `plan`, whose
// arena it allocates: logits, then the greedy continuation.
void CheckGolden(const TinyModel& golden, const GoldenTolerance& tolerance,
                 const ops::ModelPlan& plan, int page_tokens, int64_t chunk, ops::Backend* backend);

// What each layer sees by itself.
std::vector<ops::AttentionMask> OwnMasks(const ops::ModelPlan& plan);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_GOLDEN_TINY_MODELS_H_
