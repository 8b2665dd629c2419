#ifndef TOKEND_CORE_OPS_ROPE_H_
#define TOKEND_CORE_OPS_ROPE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/ops/plan.h"

namespace tokend::ops {

// Rotates each head of `heads` in place by the angles of `position`
// (Su et al. 2021, "RoFormer"). With (a, b) the i-th pair of the first
// rope.dims values and t = position * inverse_frequencies[i]:
//   a' = m (a cos t - b sin t),   b' = m (a sin t + b cos t),   m = rope.magnitude
// Values from rope.dims on stay. heads: [count, head_dim].
void RopeRef(const Rope& rope, int64_t position, int head_dim, absl::Span<double> heads);

// m cos[i] and m sin[i] of position * inverse_frequencies[i], all in double, rounded
// once: what a backend multiplies by. cos, sin: [dims / 2].
void RopeAngles(const Rope& rope, int64_t position, absl::Span<float> cos, absl::Span<float> sin);

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_ROPE_H_
