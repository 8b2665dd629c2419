#ifndef TOKEND_CUDA_KERNELS_KERNELS_LOG_PROBABILITIES_H_
#define TOKEND_CUDA_KERNELS_KERNELS_LOG_PROBABILITIES_H_

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace tokend::cuda {

// More than any request may ask for.
inline constexpr int kMaxTopTokens = 64;

struct TopToken {
  int32_t token = 0;
  float log_probability = 0;
};

// Natural logarithms of softmax over each row of finite logits, computed in double: of
// the row's token, and of the `top_count` largest in the order (logit descending, id
// ascending); where the vocabulary has fewer, the rest has token -1. A row's values do
// not depend on other rows. Rows whose token is negative write nothing.
struct LogProbabilityParams {
  int rows = 0;
  int vocabulary = 0;
  const float* logits = nullptr;       // [rows, stride] f32, on the device
  int64_t stride = 0;                  // elements
  const int32_t* tokens = nullptr;     // [rows], on the device
  int top_count = 0;                   // at most kMaxTopTokens
  float* log_probabilities = nullptr;  // [rows], on the device
  TopToken* top = nullptr;             // [rows, top_count], on the device
  unsigned char* workspace = nullptr;  // LogProbabilityWorkspaceBytes(), 16-byte aligned
};

size_t LogProbabilityWorkspaceBytes(int rows, int vocabulary);

// INVALID_ARGUMENT: more than kMaxTopTokens.
absl::Status LogProbabilities(const LogProbabilityParams& params, cudaStream_t stream);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_LOG_PROBABILITIES_H_
