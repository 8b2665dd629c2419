// Weights in the layout that the matmul kernels read, made once at load.
#ifndef TOKEND_CUDA_KERNELS_BACKEND_PACKED_WEIGHTS_H_
#define TOKEND_CUDA_KERNELS_BACKEND_PACKED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/ops/plan.h"
#include "cuda_kernels/kernels/matmul.h"

namespace tokend::cuda {

// `pair`: mode f32, in which F32 and BF16 weights are held as two f16 each.
PackedFormat PackedFormatFor(base::WeightType type, bool pair);

// Bytes of `source` once packed, a multiple of 128. `gated`: of a gate and an up
// matrix of that shape and type.
int64_t PackedBytes(const ops::Matrix& source, bool pair, bool gated);

// Fills `out`, PackedBytes of memory of the host. FAILED_PRECONDITION that names `name`
// and the first element that does not fit f16 (F32 and BF16 matrices: beyond 65504,
// Inf, NaN).
absl::Status PackWeights(const ops::Matrix& source, bool pair, absl::string_view name,
                         std::byte* out);

// Two matrices of one shape and type, tile by tile (see PackedMatrix::gated).
absl::Status PackGatedWeights(const ops::Matrix& gate, const ops::Matrix& up, bool pair,
                              absl::string_view name, std::byte* out);

// The view of what was packed from `source` and then copied to `data` on the device.
PackedMatrix PackedView(const ops::Matrix& source, bool pair, bool gated,
                        const unsigned char* data);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_BACKEND_PACKED_WEIGHTS_H_
