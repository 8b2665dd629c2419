#include "core/engine/step_cost.h"

#include <algorithm>
#include <cmath>

namespace tokend::engine {

void StepCost::Observe(int rows, absl::Duration took) {
  const double decay = std::exp2(-1.0 / 16);
  const double x = rows;
  const double y = absl::ToDoubleSeconds(took);
  weight_ = weight_ * decay + 1;
  rows_ = rows_ * decay + x;
  rows_squared_ = rows_squared_ * decay + x * x;
  seconds_ = seconds_ * decay + y;
  rows_seconds_ = rows_seconds_ * decay + x * y;
  Fit();
}

void StepCost::Fit() {
  const double spread = weight_ * rows_squared_ - rows_ * rows_;
  // Steps of (almost) one size tell nothing of the slope: blame all on the rows,
  // which errs towards small chunks.
  if (spread <= 1e-6 * rows_ * rows_) {
    fixed_ = 0;
    per_row_ = seconds_ / rows_;
    return;
  }
  per_row_ = (weight_ * rows_seconds_ - rows_ * seconds_) / spread;
  fixed_ = (seconds_ - per_row_ * rows_) / weight_;
  // Neither can be negative: then the best line goes through the origin, or is flat.
  if (fixed_ < 0) {
    fixed_ = 0;
    per_row_ = rows_seconds_ / rows_squared_;
  } else if (per_row_ < 0) {
    per_row_ = 0;
    fixed_ = seconds_ / weight_;
  }
}

absl::Duration StepCost::Predict(int rows) const { return absl::Seconds(fixed_ + per_row_ * rows); }

int StepCost::RowsWithin(absl::Duration target, int limit) const {
  const double left = absl::ToDoubleSeconds(target) - fixed_;
  if (left < 0) return 0;
  if (per_row_ * limit <= left) return limit;
  return std::clamp(static_cast<int>(left / per_row_), 0, limit);
}

}  // namespace tokend::engine
