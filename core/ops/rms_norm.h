#ifndef TOKEND_CORE_OPS_RMS_NORM_H_
#define TOKEND_CORE_OPS_RMS_NORM_H_

#include "absl/types/span.h"

namespace tokend::ops {

// out[i] = x[i] * weight[i] / sqrt(mean(x^2) + epsilon)
// (Zhang and Sennrich 2019, "Root Mean Square Layer Normalization").
// x, weight, out: [width]; out may be x.
void RmsNormRef(absl::Span<const double> x, absl::Span<const float> weight, double epsilon,
                absl::Span<double> out);

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_RMS_NORM_H_
