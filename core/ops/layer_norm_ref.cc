#include <cmath>

#include "core/base/check.h"
#include "core/ops/layer_norm.h"

namespace tokend::ops {

void LayerNormRef(absl::Span<const double> x, absl::Span<const float> weight,
                  absl::Span<const float> bias, double epsilon, absl::Span<double> out) {
  TOKEND_CHECK(x.size() == weight.size() && x.size() == out.size());
  TOKEND_CHECK(bias.empty() || bias.size() == x.size());
  double sum = 0;
  for (const double value : x) sum += value;
  const double mean = sum / static_cast<double>(x.size());
  double squares = 0;
  for (const double value : x) squares += (value - mean) * (value - mean);
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] = (x[i] - mean) * scale * weight[i] + (bias.empty() ? 0.0 : bias[i]);
  }
}

}  // namespace tokend::ops
