// Logits to tokens, with exactly the tokens of sampling::Sampler: what decides them is
// ops/sampling_math.h on both sides, and sums of weights are of whole numbers, so that
// their order does not matter.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_SAMPLING_H_
#define TOKEND_CUDA_KERNELS_KERNELS_SAMPLING_H_

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "core/ops/sampling_params.h"

namespace tokend::cuda {

// ops::SamplingParams of one row; the lists are TokenAdjustments.
struct SamplingRow {
  uint64_t seed = 0;
  int64_t position = 0;  // of the token that is drawn
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int32_t first_adjustment = 0;  // index in SampleParams::adjustments
  int32_t adjustment_count = 0;
};

// Without adjustments.
SamplingRow MakeSamplingRow(const ops::SamplingParams& params, int64_t position);

// What bias and penalties know of one token of a row. In a row by ascending token,
// each token once.
struct TokenAdjustment {
  int32_t token = 0;
  float bias = 0;         // -100 forbids
  int32_t in_window = 0;  // how often in the repetition penalty's window
  int32_t in_output = 0;
};

// What is no token, of SampleParams::tokens: every token of the row is forbidden, or
// the logit of token -1 - value is not finite.
inline constexpr int32_t kEveryTokenForbidden = INT32_MIN;

struct SampleParams {
  int rows = 0;
  int vocabulary = 0;
  float* logits = nullptr;  // [rows, stride] f32; changed while it runs, then as before
  int64_t stride = 0;       // elements
  const SamplingRow* row_params = nullptr;       // [rows], on the device
  const TokenAdjustment* adjustments = nullptr;  // on the device
  int adjustment_capacity = 0;                   // 0: no row has any, nor a penalty
  // [rows] or nullptr: the row's newest output token where its adjustments do not count
  // it yet (the step before drew it), else -1. On the device.
  const int32_t* newest = nullptr;
  int32_t* tokens = nullptr;           // [rows], on the device
  unsigned char* workspace = nullptr;  // SamplingWorkspaceBytes(), 16-byte aligned
};

size_t SamplingWorkspaceBytes(int rows, int vocabulary, int adjustment_capacity);

// Every parameter set runs here, at any vocabulary. Fast: temperature 0, and whatever
// leaves at most some 2,000 tokens or has its nucleus or its draw among the 500 best.
absl::Status SampleRows(const SampleParams& params, cudaStream_t stream);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_SAMPLING_H_
