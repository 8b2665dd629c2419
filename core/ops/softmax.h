#ifndef TOKEND_CORE_OPS_SOFTMAX_H_
#define TOKEND_CORE_OPS_SOFTMAX_H_

#include "absl/types/span.h"

namespace tokend::ops {

// values[i] = exp(values[i] - max) / sum over j of exp(values[j] - max), in
// place. Not empty.
void SoftmaxRef(absl::Span<double> values);

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_SOFTMAX_H_
