// How likely a text is to a model.
#ifndef TOKEND_TESTS_SUPPORT_PERPLEXITY_H_
#define TOKEND_TESTS_SUPPORT_PERPLEXITY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tokend::testing {

// Natural logarithm of the softmax.
std::vector<double> LogSoftmax(absl::Span<const float> logits);
std::vector<double> LogSoftmax(absl::Span<const double> logits);

// exp of the mean negative log-probability of a text's tokens, each after those
// before it; the first has none.
class Perplexity {
 public:
  // `logits` [vocabulary_size], after the tokens before `token`.
  void Add(absl::Span<const float> logits, int32_t token);
  // After at least one Add.
  double value() const;

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_PERPLEXITY_H_
