#include "tests/support/perplexity.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/base/check.h"

namespace tokend::testing {
namespace {

template <typename T>
std::vector<double> LogSoftmaxOf(absl::Span<const T> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const T logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  std::vector<double> out;
  out.reserve(logits.size());
  for (const T logit : logits) out.push_back(static_cast<double>(logit) - top - std::log(sum));
  return out;
}

}  // namespace

std::vector<double> LogSoftmax(absl::Span<const float> logits) { return LogSoftmaxOf(logits); }
std::vector<double> LogSoftmax(absl::Span<const double> logits) { return LogSoftmaxOf(logits); }

void Perplexity::Add(absl::Span<const float> logits, int32_t token) {
  sum_ += LogSoftmax(logits)[static_cast<size_t>(token)];
  ++count_;
}

double Perplexity::value() const {
  TOKEND_CHECK(count_ > 0);
  return std::exp(-sum_ / static_cast<double>(count_));
}

}  // namespace tokend::testing
