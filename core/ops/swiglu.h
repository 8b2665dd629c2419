#ifndef TOKEND_CORE_OPS_SWIGLU_H_
#define TOKEND_CORE_OPS_SWIGLU_H_

#include "absl/types/span.h"

namespace tokend::ops {

// out[i] = silu(gate[i]) * up[i], silu(z) = z / (1 + exp(-z))
// (Shazeer 2020, "GLU Variants Improve Transformer"). Any equal sizes; out may
// be gate or up.
void SwiGluRef(absl::Span<const double> gate, absl::Span<const double> up, absl::Span<double> out);

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_SWIGLU_H_
