#include "core/sampling/fixed_exp.h"

#include <array>
#include <cstddef>

#include "core/ops/sampling_math.h"

namespace tokend::sampling {

uint64_t SumWeights(absl::Span<const float> logits, float max, double temperature) {
  const float* data = logits.data();
  uint64_t sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) sum += ops::TokenWeight(data[i], max, temperature);
  return sum;
}

double SumExp(absl::Span<const float> logits, float max) {
  constexpr size_t kBlock = 64;
  std::array<double, kBlock> values;
  double sum = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t count = logits.size() - begin < kBlock ? logits.size() - begin : kBlock;
    const float* block = logits.data() + begin;
    for (size_t i = 0; i < count; ++i) {
      const double x = static_cast<double>(block[i]) - static_cast<double>(max);
      values[i] = ops::ExpInRange(x < -700 ? -700 : x);  // exp(-700) vanishes beside 1
    }
    for (size_t i = 0; i < count; ++i) sum += values[i];
  }
  return sum;
}

}  // namespace tokend::sampling
