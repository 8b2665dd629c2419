#include <cmath>

#include "core/base/check.h"
#include "core/ops/rope.h"

namespace tokend::ops {

void RopeRef(const Rope& rope, int64_t position, int head_dim, absl::Span<double> heads) {
  const auto pairs = static_cast<size_t>(rope.dims / 2);
  const auto stride = static_cast<size_t>(head_dim);
  TOKEND_CHECK(rope.dims <= head_dim && heads.size() % stride == 0);
  TOKEND_CHECK(rope.inverse_frequencies.size() == pairs);
  const bool halves = rope.pairing == RopePairing::kHalves;
  for (size_t head = 0; head < heads.size(); head += stride) {
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * rope.inverse_frequencies[i];
      double& a = heads[head + (halves ? i : 2 * i)];
      double& b = heads[head + (halves ? i + pairs : 2 * i + 1)];
      const double rotated = rope.magnitude * (a * std::cos(angle) - b * std::sin(angle));
      b = rope.magnitude * (a * std::sin(angle) + b * std::cos(angle));
      a = rotated;
    }
  }
}

void RopeAngles(const Rope& rope, int64_t position, absl::Span<float> cos, absl::Span<float> sin) {
  for (size_t i = 0; i < rope.inverse_frequencies.size(); ++i) {
    const double angle = static_cast<double>(position) * rope.inverse_frequencies[i];
    cos[i] = static_cast<float>(rope.magnitude * std::cos(angle));
    sin[i] = static_cast<float>(rope.magnitude * std::sin(angle));
  }
}

}  // namespace tokend::ops
