#include <cmath>

#include "core/base/check.h"
#include "core/ops/rms_norm.h"

namespace tokend::ops {

void RmsNormRef(absl::Span<const double> x, absl::Span<const float> weight, double epsilon,
                absl::Span<double> out) {
  TOKEND_CHECK(x.size() == weight.size() && x.size() == out.size());
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
}

}  // namespace tokend::ops
