#ifndef TOKEND_CORE_OPS_LINEAR_H_
#define TOKEND_CORE_OPS_LINEAR_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/ops/plan.h"

namespace tokend::ops {

// y[t] = W x[t] + bias for each of x.size() / cols rows t, W de-quantised to
// f32 (see dequantize.h). x: [n, cols], y: [n, rows]; they do not overlap.
void LinearRef(const Linear& linear, absl::Span<const double> x, absl::Span<double> y);

// out = row `token` of the table, de-quantised. out: [table.cols].
void EmbeddingRef(const Matrix& table, int32_t token, absl::Span<double> out);

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_LINEAR_H_
