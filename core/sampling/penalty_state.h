#ifndef TOKEND_CORE_SAMPLING_PENALTY_STATE_H_
#define TOKEND_CORE_SAMPLING_PENALTY_STATE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "core/ops/sampling_params.h"

namespace tokend::sampling {

// What the penalties of one turn know: how often each token stands in the newest
// kPenaltyWindowTokens of base, input and output, and in the output. Keeps
// nothing where no penalty is on. One thread.
class PenaltyState {
 public:
  struct Counts {
    int32_t window = 0;
    int32_t output = 0;
  };

  explicit PenaltyState(const ops::SamplingParams& params);

  // The repetition penalty is on: AddContext wants the newest tokens before the
  // output.
  bool wants_context() const { return repetition_; }
  // Tokens of base and input, oldest first; more than the window holds is fine.
  void AddContext(absl::Span<const int32_t> tokens);
  void AddOutput(int32_t token);

  // Those with a count that is not 0.
  const absl::flat_hash_map<int32_t, Counts>& counts() const { return counts_; }

 private:
  void AddToWindow(int32_t token);

  const bool repetition_;
  const bool output_;
  absl::flat_hash_map<int32_t, Counts> counts_;
  std::vector<int32_t> window_;  // ring, full once it has kPenaltyWindowTokens
  size_t oldest_ = 0;
};

}  // namespace tokend::sampling

#endif  // TOKEND_CORE_SAMPLING_PENALTY_STATE_H_
