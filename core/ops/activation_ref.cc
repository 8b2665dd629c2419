#include <cmath>
#include <numbers>

#include "core/base/check.h"
#include "core/ops/activation.h"

namespace tokend::ops {

double Activate(Activation activation, double z) {
  switch (activation) {
    case Activation::kSilu:
      return z / (1.0 + std::exp(-z));
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2.0) * std::numbers::inv_sqrtpi * (z + 0.044715 * z * z * z);
      return 0.5 * z * (1.0 + std::tanh(inner));
    }
    case Activation::kGelu:
      return 0.5 * z * std::erfc(-z / std::numbers::sqrt2);
  }
  TOKEND_CHECK(false && "an activation without a formula");
  return 0;
}

void ActivateRef(Activation activation, absl::Span<const double> z, absl::Span<double> out) {
  TOKEND_CHECK(z.size() == out.size());
  for (size_t i = 0; i < z.size(); ++i) out[i] = Activate(activation, z[i]);
}

void GatedRef(Activation activation, absl::Span<const double> gate, absl::Span<const double> up,
              absl::Span<double> out) {
  TOKEND_CHECK(gate.size() == up.size() && gate.size() == out.size());
  for (size_t i = 0; i < gate.size(); ++i) out[i] = Activate(activation, gate[i]) * up[i];
}

}  // namespace tokend::ops
