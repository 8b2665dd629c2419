#include "tests/support/rewritten_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/base/check.h"
#include "core/ops/half.h"

namespace tokend::testing {
namespace {

using base::WeightType;

constexpr size_t kBlock = 32;

void PutHalf(float value, std::string* out) {
  const uint16_t bits = ops::F32ToF16(value);
  out->append(reinterpret_cast<const char*>(&bits), sizeof(bits));
}

int Code(float value, int least, int most) {
  return std::clamp(static_cast<int>(std::nearbyint(value)), least, most);
}

float RoundedToHalf(float value) { return ops::F16ToF32(ops::F32ToF16(value)); }

// Codes of 4 bits side by side (low: values 0-15), before them, with 5, the highest bits.
void PutCodes(const int (&codes)[kBlock], int bits, std::string* out) {
  if (bits == 5) {
    uint32_t high = 0;
    for (size_t i = 0; i < kBlock; ++i) high |= static_cast<uint32_t>(codes[i] >> 4) << i;
    out->append(reinterpret_cast<const char*>(&high), sizeof(high));
  }
  for (size_t i = 0; i < kBlock / 2; ++i) {
    out->push_back(static_cast<char>((codes[i] & 15) | (codes[i + kBlock / 2] & 15) << 4));
  }
}

void QuantiseBlock(WeightType type, const float* x, std::string* out) {
  const auto [low, high] = std::minmax_element(x, x + kBlock);
  const float largest = std::max(std::abs(*low), std::abs(*high));
  if (type == WeightType::kQ8_0) {
    const float scale = RoundedToHalf(largest / 127);
    PutHalf(scale, out);
    for (size_t i = 0; i < kBlock; ++i) {
      out->push_back(static_cast<char>(scale > 0 ? Code(x[i] / scale, -127, 127) : 0));
    }
    return;
  }
  const int bits = type == WeightType::kQ4_0 || type == WeightType::kQ4_1 ? 4 : 5;
  const int most = (1 << bits) - 1;
  const bool minima = type == WeightType::kQ4_1 || type == WeightType::kQ5_1;
  const int zero = minima ? 0 : 1 << (bits - 1);
  const float scale = RoundedToHalf(minima ? (*high - *low) / static_cast<float>(most)
                                           : largest / static_cast<float>(most - zero));
  const float minimum = minima ? RoundedToHalf(*low) : 0;
  PutHalf(scale, out);
  if (minima) PutHalf(minimum, out);
  int codes[kBlock];
  for (size_t i = 0; i < kBlock; ++i) {
    codes[i] =
        scale > 0 ? Code((x[i] - minimum) / scale + static_cast<float>(zero), 0, most) : zero;
  }
  PutCodes(codes, bits, out);
}

}  // namespace

std::string Quantise(WeightType type, absl::Span<const float> values) {
  TOKEND_CHECK(base::GetWeightType(type).block_elements == static_cast<int>(kBlock));
  TOKEND_CHECK(values.size() % kBlock == 0);
  std::string out;
  for (size_t at = 0; at < values.size(); at += kBlock) {
    QuantiseBlock(type, values.data() + at, &out);
  }
  return out;
}

void RewrittenPlan::Rewrite(WeightType type, ops::Matrix* matrix) {
  if (!matrix->present() || matrix->cols % static_cast<int64_t>(kBlock) != 0) return;
  TOKEND_CHECK(matrix->type == WeightType::kF32);
  std::vector<float> values(static_cast<size_t>(matrix->rows * matrix->cols));
  std::memcpy(values.data(), matrix->data, values.size() * sizeof(float));
  data_.push_back(Quantise(type, values));
  matrix->type = type;
  matrix->data = reinterpret_cast<const std::byte*>(data_.back().data());
}

RewrittenPlan::RewrittenPlan(const ops::ModelPlan& plan, WeightType type) : plan_(plan) {
  Rewrite(type, &plan_.embedding);
  Rewrite(type, &plan_.output.weight);
  for (ops::LayerPlan& layer : plan_.layers) {
    for (ops::Linear* linear : {&layer.query, &layer.key, &layer.value, &layer.attention_output,
                                &layer.gate, &layer.up, &layer.down}) {
      Rewrite(type, &linear->weight);
    }
  }
}

}  // namespace tokend::testing
