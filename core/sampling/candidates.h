// Finding the best logits of a vocabulary without sorting it.
#ifndef TOKEND_CORE_SAMPLING_CANDIDATES_H_
#define TOKEND_CORE_SAMPLING_CANDIDATES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/ops/sampling_math.h"

namespace tokend::sampling {

// A token in the order (logit descending, id ascending).
struct Candidate {
  uint64_t order = 0;  // ops::OrderOf: the larger comes first
  uint64_t weight = 0;

  int32_t id() const { return ops::IdOfOrder(order); }
};

// Scans a vocabulary in blocks: the maximum of each block lets a search skip all
// blocks but a few. Holds memory between uses; one thread.
class LogitScan {
 public:
  // Looks at `logits`, which must stay until the last call of the others. False:
  // one of them is NaN or infinite; then call nothing else, unless it is only
  // that some are minus infinity to forbid their tokens.
  bool Start(absl::Span<const float> logits);

  // The first of the largest logits; -1 if every token is forbidden.
  int32_t Argmax() const;

  // Those of the `count` largest logits, all that tie with the last included, in
  // no order; fewer if there are not as many allowed. `out` is cleared.
  void Largest(size_t count, std::vector<Candidate>* out);

  // All allowed tokens with a logit of at least `least`, in no order.
  void AtLeast(float least, std::vector<Candidate>* out) const;

 private:
  void Collect(int32_t least_key, std::vector<Candidate>* out) const;

  absl::Span<const float> logits_;
  std::vector<int32_t> block_max_;  // keys
  std::vector<int32_t> scratch_;
};

// Reorders `candidates` so that for the returned index i the first i + 1 are the
// first i + 1 in their order (the last of them at i) and i is the least with
// weight 0 + ... + weight i > target. `target` is below the sum of all weights.
size_t SelectByWeight(absl::Span<Candidate> candidates, uint64_t target);

}  // namespace tokend::sampling

#endif  // TOKEND_CORE_SAMPLING_CANDIDATES_H_
