#ifndef TOKEND_CORE_ENGINE_STEP_COST_H_
#define TOKEND_CORE_ENGINE_STEP_COST_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tokend::engine {

// Predicts how long a step takes from those that were measured, as
// fixed + per_row * rows: weighted least squares in which a step's weight halves
// with every 16 that follow. Rows are decode tokens and prefill tokens alike:
// both cost one row of every matmul.
class StepCost {
 public:
  void Observe(int rows, absl::Duration took);

  // Zero before the first observation.
  absl::Duration Predict(int rows) const;
  // Most rows whose step is predicted to stay within `target`; at least 0, at
  // most `limit`.
  int RowsWithin(absl::Duration target, int limit) const;

  bool has_data() const { return weight_ > 0; }

 private:
  void Fit();

  // Sums over the observations, weighted.
  double weight_ = 0;
  double rows_ = 0;
  double rows_squared_ = 0;
  double seconds_ = 0;
  double rows_seconds_ = 0;

  double fixed_ = 0;    // seconds
  double per_row_ = 0;  // seconds
};

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_STEP_COST_H_
