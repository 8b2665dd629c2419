#include "cuda_kernels/backend/packed_weights.h"

#include <limits>

#include "core/ops/half.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cuda_kernels/matmul_rig.h"

namespace tokend::cuda {
namespace {

using ::testing::HasSubstr;

template <typename T>
absl::Status Pack(WeightType type, const std::vector<T>& values, int rows) {
  const ops::Matrix matrix{type, rows, static_cast<int64_t>(values.size()) / rows,
                           reinterpret_cast<const std::byte*>(values.data())};
  std::vector<std::byte> out(static_cast<size_t>(PackedBytes(matrix, false, false)));
  return PackWeights(matrix, false, "blk.3.ffn_up.weight", out.data());
}

TEST(PackedWeightsTest, RefusesWhatF16CannotHold) {
  std::vector<float> values(3 * 40, 65504.0f);
  EXPECT_TRUE(Pack(WeightType::kF32, values, 3).ok());
  for (const float bad : {65536.0f, -7e4f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    values[2 * 40 + 37] = bad;
    const absl::Status status = Pack(WeightType::kF32, values, 3);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'blk.3.ffn_up.weight'"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("[2, 37]"));
  }
  std::vector<uint16_t> wide(64, ops::F32ToBf16(1));
  EXPECT_TRUE(Pack(WeightType::kBF16, wide, 2).ok());
  wide[5] = ops::F32ToBf16(1e9f);
  EXPECT_EQ(Pack(WeightType::kBF16, wide, 2).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(PackedWeightsTest, FillsItsMemoryAndNoMore) {
  for (const WeightType type : kAllTypes) {
    for (const bool gated : {false, true}) {
      const int cols = base::GetWeightType(type).block_elements == 256 ? 512 : 96;
      std::mt19937_64 random(1);
      const std::string bytes =
          testing::RandomWeights(type, static_cast<uint64_t>(21 * cols), 0.05f, random);
      const ops::Matrix matrix{type, 21, cols, reinterpret_cast<const std::byte*>(bytes.data())};
      const auto size = static_cast<size_t>(PackedBytes(matrix, true, gated));
      EXPECT_EQ(size % 128, 0u);
      std::vector<std::byte> out(size + 64, std::byte{0xa5});
      ASSERT_TRUE((gated ? PackGatedWeights(matrix, matrix, true, "w", out.data())
                         : PackWeights(matrix, true, "w", out.data()))
                      .ok());
      EXPECT_THAT(std::vector<std::byte>(out.end() - 64, out.end()),
                  ::testing::Each(std::byte{0xa5}))
          << TypeName(type);
    }
  }
}

}  // namespace
}  // namespace tokend::cuda
