#include <cmath>

#include "core/base/check.h"
#include "core/ops/swiglu.h"

namespace tokend::ops {

void SwiGluRef(absl::Span<const double> gate, absl::Span<const double> up, absl::Span<double> out) {
  TOKEND_CHECK(gate.size() == up.size() && gate.size() == out.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    out[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
  }
}

}  // namespace tokend::ops
