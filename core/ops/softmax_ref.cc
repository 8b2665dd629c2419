#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/ops/softmax.h"

namespace tokend::ops {

void SoftmaxRef(absl::Span<double> values) {
  TOKEND_CHECK(!values.empty());
  const double max = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (double& value : values) {
    value = std::exp(value - max);
    sum += value;
  }
  for (double& value : values) value /= sum;
}

}  // namespace tokend::ops
