#include "core/ops/dequantize.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/base/dtype.h"
#include "gtest/gtest.h"

namespace tokend::ops {
namespace {

using base::WeightType;

std::string Read(const std::string& name) {
  std::ifstream file(absl::StrCat("tests/golden/dequant/", name), std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class DequantizeTest : public ::testing::TestWithParam<WeightType> {};

// The files come from the `gguf` Python package; see make_dequant.py.
TEST_P(DequantizeTest, MatchesGoldenValuesBitForBit) {
  const base::WeightTypeInfo& info = base::GetWeightType(GetParam());
  const std::string name = absl::AsciiStrToLower(info.name);
  const std::string blocks = Read(name + ".blocks");
  const std::string golden = Read(name + ".f32");
  ASSERT_GT(blocks.size(), 0u);
  std::vector<float> want(golden.size() / sizeof(float));
  std::memcpy(want.data(), golden.data(), golden.size());
  ASSERT_EQ(blocks.size() / info.block_bytes * info.block_elements, want.size());

  // One byte off any alignment: rows in a file start anywhere.
  const std::string shifted = " " + blocks;
  std::vector<float> got(want.size());
  DequantizeRowRef(GetParam(), reinterpret_cast<const std::byte*>(shifted.data() + 1),
                   absl::MakeSpan(got));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << "element " << i;
}

INSTANTIATE_TEST_SUITE_P(AllTypes, DequantizeTest,
                         ::testing::Values(WeightType::kF16, WeightType::kBF16, WeightType::kQ4_0,
                                           WeightType::kQ4_1, WeightType::kQ5_0, WeightType::kQ5_1,
                                           WeightType::kQ8_0, WeightType::kQ4_K, WeightType::kQ5_K,
                                           WeightType::kQ6_K),
                         [](const auto& type) {
                           return std::string(base::GetWeightType(type.param).name);
                         });

TEST(DequantizeRowTest, F32IsCopied) {
  const std::vector<float> values = {1.5f, -0.0f, 3e-40f};
  std::vector<float> got(3);
  DequantizeRowRef(WeightType::kF32, reinterpret_cast<const std::byte*>(values.data()),
                   absl::MakeSpan(got));
  EXPECT_EQ(0, std::memcmp(got.data(), values.data(), 3 * sizeof(float)));
}

TEST(RowBytesTest, CountsBlocks) {
  EXPECT_EQ(RowBytes({WeightType::kQ4_1, 1, 576, nullptr}), 18 * 20);
  EXPECT_EQ(RowBytes({WeightType::kQ6_K, 1, 512, nullptr}), 2 * 210);
  EXPECT_EQ(RowBytes({WeightType::kF32, 1, 7, nullptr}), 28);
}

}  // namespace
}  // namespace tokend::ops
