#ifndef TOKEND_CORE_OPS_LAYER_NORM_H_
#define TOKEND_CORE_OPS_LAYER_NORM_H_

#include "absl/types/span.h"

namespace tokend::ops {

// out[i] = (x[i] - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * weight[i] + bias[i]
// (Ba et al. 2016, "Layer Normalization").
// x, weight, bias, out: [width]; no bias: empty. out may be x.
void LayerNormRef(absl::Span<const double> x, absl::Span<const float> weight,
                  absl::Span<const float> bias, double epsilon, absl::Span<double> out);

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_LAYER_NORM_H_
