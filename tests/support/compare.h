// Comparison of computed numbers with a reference, under derived tolerances.
#ifndef TOKEND_TESTS_SUPPORT_COMPARE_H_
#define TOKEND_TESTS_SUPPORT_COMPARE_H_

#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace tokend::testing {

inline constexpr double kEpsF32 = std::numeric_limits<float>::epsilon() / 2;  // unit roundoff
inline constexpr double kEpsF16 = 0x1p-11;

// The largest rounding error of a sum of `terms` products computed with unit
// roundoff `eps`, in any order, fused or not: terms * eps * sum |x_i w_i|
// (Higham, "Accuracy and Stability of Numerical Algorithms", 3.1), which by
// Cauchy and Schwarz is at most terms * eps * |x| * |w|. `extra` is the number
// of further roundings that a result goes through.
inline double DotTolerance(double eps, size_t terms, double norm_x, double norm_w,
                           size_t extra = 1) {
  return static_cast<double>(terms + extra) * eps * norm_x * norm_w;
}

template <typename T>
double Norm2(absl::Span<const T> values) {
  double squares = 0;
  for (const T value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

// Passes when every element is finite and got[i] is within tolerances[i] of
// want[i]. NaN and Inf (anywhere, tolerances included), different sizes and
// empty input fail.
::testing::AssertionResult Near(absl::Span<const float> got, absl::Span<const double> want,
                                absl::Span<const double> tolerances);

// One tolerance for all.
::testing::AssertionResult Near(absl::Span<const float> got, absl::Span<const double> want,
                                double tolerance);

// Passes when both hold the same bits and are not empty; any NaN fails.
::testing::AssertionResult SameBits(absl::Span<const float> got, absl::Span<const float> want);

// Root mean square of the differences; infinite if an element of `got` is not
// finite or the sizes differ.
double RootMeanSquareError(absl::Span<const float> got, absl::Span<const double> want);

// Standard deviation of a row of logits: the unit of logit tolerances.
double StandardDeviation(absl::Span<const double> values);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_COMPARE_H_
