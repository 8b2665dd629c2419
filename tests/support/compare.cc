#include "tests/support/compare.h"

#include <cstring>
#include <vector>

namespace tokend::testing {
namespace {

::testing::AssertionResult Sizes(size_t got, size_t want) {
  if (got != want) {
    return ::testing::AssertionFailure() << got << " elements where " << want << " are wanted";
  }
  if (got == 0) return ::testing::AssertionFailure() << "nothing to compare";
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult Near(absl::Span<const float> got, absl::Span<const double> want,
                                absl::Span<const double> tolerances) {
  if (auto sizes = Sizes(got.size(), want.size()); !sizes) return sizes;
  if (auto sizes = Sizes(tolerances.size(), want.size()); !sizes) return sizes;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i]) || !std::isfinite(want[i]) || !std::isfinite(tolerances[i])) {
      return ::testing::AssertionFailure() << "not finite at " << i << ": got " << got[i]
                                           << ", want " << want[i] << " +- " << tolerances[i];
    }
  }
  size_t wrong = 0, worst = 0;
  double worst_excess = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double excess = std::abs(got[i] - want[i]) - tolerances[i];
    if (excess <= 0) continue;
    ++wrong;
    if (excess > worst_excess) {
      worst = i;
      worst_excess = excess;
    }
  }
  if (wrong == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << wrong << " of " << got.size() << " elements differ; worst at " << worst << ": got "
         << got[worst] << ", want " << want[worst] << " +- " << tolerances[worst];
}

::testing::AssertionResult Near(absl::Span<const float> got, absl::Span<const double> want,
                                double tolerance) {
  return Near(got, want, std::vector<double>(want.size(), tolerance));
}

::testing::AssertionResult SameBits(absl::Span<const float> got, absl::Span<const float> want) {
  if (auto sizes = Sizes(got.size(), want.size()); !sizes) return sizes;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) || std::isnan(want[i])) {
      return ::testing::AssertionFailure()
             << "NaN at " << i << ": got " << got[i] << ", want " << want[i];
    }
    if (std::memcmp(&got[i], &want[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "bits differ at " << i << " of " << got.size()
                                           << ": got " << got[i] << ", want " << want[i];
    }
  }
  return ::testing::AssertionSuccess();
}

double RootMeanSquareError(absl::Span<const float> got, absl::Span<const double> want) {
  if (got.size() != want.size() || got.empty()) return INFINITY;
  double squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    const double error = static_cast<double>(got[i]) - want[i];
    squares += error * error;
  }
  return std::sqrt(squares / static_cast<double>(got.size()));
}

double StandardDeviation(absl::Span<const double> values) {
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

}  // namespace tokend::testing
