#include "tests/support/random_weights.h"

#include <cstring>

#include "core/base/check.h"
#include "core/ops/half.h"

namespace tokend::testing {
namespace {

// Where a block keeps its half-precision scale and minimum, and what random codes (uniform, 6-bit
// and 8-bit sub-scales included) make of a scale of 1.
struct BlockLayout {
  base::WeightType type;
  int scale_at;
  int min_at;       // -1: none
  float mean;       // of the codes' values; the minimum is chosen to cancel it
  float deviation;  // of the values, minimum included
};

constexpr BlockLayout kLayouts[] = {
    {base::WeightType::kQ4_0, 0, -1, 0.0f, 4.6f},
    {base::WeightType::kQ4_1, 0, 2, -7.5f, 4.6f},
    {base::WeightType::kQ5_0, 0, -1, 0.0f, 9.2f},
    {base::WeightType::kQ5_1, 0, 2, -15.5f, 9.2f},
    {base::WeightType::kQ8_0, 0, -1, 0.0f, 74.0f},
    {base::WeightType::kQ4_K, 0, 2, 7.5f, 258.0f},
    {base::WeightType::kQ5_K, 0, 2, 15.5f, 527.0f},
    {base::WeightType::kQ6_K, 208, -1, 0.0f, 1369.0f},
};

void PutHalf(std::string* bytes, size_t at, float value) {
  const uint16_t half = ops::F32ToF16(value);
  std::memcpy(bytes->data() + at, &half, sizeof(half));
}

std::string PlainWeights(base::WeightType type, uint64_t elements, float scale,
                         std::mt19937_64& rng) {
  std::normal_distribution<float> normal(0.0f, scale);
  const auto size = static_cast<size_t>(base::GetWeightType(type).block_bytes);
  std::string bytes(elements * size, '\0');
  for (uint64_t i = 0; i < elements; ++i) {
    const float value = normal(rng);
    if (type == base::WeightType::kF16) {
      PutHalf(&bytes, i * size, value);
    } else {
      // bfloat16 is the upper half of a float.
      const char* source = reinterpret_cast<const char*>(&value) + (sizeof(value) - size);
      std::memcpy(bytes.data() + i * size, source, size);
    }
  }
  return bytes;
}

}  // namespace

std::string RandomWeights(base::WeightType type, uint64_t elements, float scale,
                          std::mt19937_64& rng) {
  const base::WeightTypeInfo& info = base::GetWeightType(type);
  if (info.block_elements == 1) return PlainWeights(type, elements, scale, rng);
  TOKEND_CHECK(elements % static_cast<uint64_t>(info.block_elements) == 0);
  const uint64_t blocks = elements / static_cast<uint64_t>(info.block_elements);
  std::string bytes(blocks * static_cast<uint64_t>(info.block_bytes), '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng() & 0xff);
  for (const BlockLayout& layout : kLayouts) {
    if (layout.type != type) continue;
    std::uniform_real_distribution<float> spread(0.5f, 1.5f);
    for (uint64_t b = 0; b < blocks; ++b) {
      const float unit = scale / layout.deviation * spread(rng);
      const size_t block = b * static_cast<size_t>(info.block_bytes);
      PutHalf(&bytes, block + static_cast<size_t>(layout.scale_at), unit);
      if (layout.min_at >= 0) {
        PutHalf(&bytes, block + static_cast<size_t>(layout.min_at), unit * layout.mean);
      }
    }
    return bytes;
  }
  TOKEND_CHECK(false && "a type without a layout");
  return {};
}

}  // namespace tokend::testing
