#ifndef TOKEND_CORE_OPS_ACTIVATION_H_
#define TOKEND_CORE_OPS_ACTIVATION_H_

#include "absl/types/span.h"
#include "core/ops/plan.h"

namespace tokend::ops {

// kSilu      z / (1 + exp(-z))
// kGeluTanh  z / 2 (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3)))
// kGelu      z / 2 (1 + erf(z / sqrt(2)))
// (Hendrycks and Gimpel 2016, "Gaussian Error Linear Units").
double Activate(Activation activation, double z);

// out[i] = Activate(z[i]). Equal sizes; out may be z.
void ActivateRef(Activation activation, absl::Span<const double> z, absl::Span<double> out);

// out[i] = Activate(gate[i]) * up[i] (Shazeer 2020, "GLU Variants Improve
// Transformer"). Any equal sizes; out may be gate or up.
void GatedRef(Activation activation, absl::Span<const double> gate, absl::Span<const double> up,
              absl::Span<double> out);

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_ACTIVATION_H_
