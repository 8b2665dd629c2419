#include "core/cpu/packed_matrix.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "core/cpu/matmul.h"
#include "gtest/gtest.h"
#include "tests/core/cpu/matmul_support.h"
#include "tests/support/compare.h"

namespace tokend::cpu {
namespace {

using base::Activations;
using base::WeightType;
using testing::SameBits;

// All weights, read through the f32 kernel: the product with a unit vector is the
// weight itself. [cols, rows]
std::vector<float> ReadBack(const TestMatrix& w, Isa isa) {
  const int64_t cols = w.cols();
  std::vector<float> units(static_cast<size_t>(cols * cols), 0.0f);
  for (int64_t k = 0; k < cols; ++k) units[static_cast<size_t>(k * cols + k)] = 1;
  const ActivationBlocks x = Hold(Activations::kF32, isa, units, cols);
  std::vector<float> values(static_cast<size_t>(cols * w.rows()));
  MatmulPanels(isa, w.packed(), x, 0, cols, 0, w.packed().panels(), values.data(), w.rows());
  return values;
}

class PackedMatrixTest : public ::testing::TestWithParam<WeightType> {};

TEST_P(PackedMatrixTest, KeepsEveryWeight) {
  const base::WeightTypeInfo& info = base::GetWeightType(GetParam());
  const int64_t cols = info.block_elements == 1 ? 45 : 2 * std::max(info.block_elements, 64);
  for (const int64_t rows : {1, 31, 32, 33, 70}) {
    const std::unique_ptr<TestMatrix> w =
        RandomMatrix(GetParam(), rows, cols, static_cast<uint64_t>(rows));
    for (const Isa isa : SupportedIsas()) {
      const std::vector<float> values = ReadBack(*w, isa);
      for (int64_t o = 0; o < rows; ++o) {
        std::vector<float> column;
        for (int64_t k = 0; k < cols; ++k) {
          column.push_back(values[static_cast<size_t>(k * rows + o)]);
        }
        // -0 and +0 are one weight: adding to the zero that a sum starts from.
        std::vector<float> want = w->Row(o);
        for (float& value : want) value += 0.0f;
        ASSERT_TRUE(SameBits(column, want)) << "row " << o << " of " << rows;
      }
    }
  }
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST_P(PackedMatrixTest, MatchesGoldenVectors) {
  const base::WeightTypeInfo& info = base::GetWeightType(GetParam());
  const std::string stem = "tests/golden/dequant/" + absl::AsciiStrToLower(info.name);
  std::string blocks = ReadFile(stem + ".blocks");
  if (GetParam() == WeightType::kF32) return;  // is its own golden value
  const std::string bytes = ReadFile(stem + ".f32");
  ASSERT_FALSE(blocks.empty());
  std::vector<float> want(bytes.size() / sizeof(float));
  std::memcpy(want.data(), bytes.data(), bytes.size());
  const auto cols = static_cast<int64_t>(want.size());
  const TestMatrix w(GetParam(), 1, cols, std::move(blocks));
  for (float& value : want) value += 0.0f;
  for (const Isa isa : SupportedIsas()) {
    EXPECT_TRUE(SameBits(ReadBack(w, isa), want)) << NameOfIsa(isa);
  }
}

TEST_P(PackedMatrixTest, Size) {
  const base::WeightTypeInfo& info = base::GetWeightType(GetParam());
  const ops::Matrix source{GetParam(), 320, 512, nullptr};
  const int64_t file_bytes = 320 * 512 / info.block_elements * info.block_bytes;
  const int64_t packed_bytes = PackedMatrix::PackedBytes(source);
  EXPECT_EQ(packed_bytes % 64, 0);
  switch (GetParam()) {
    case WeightType::kQ4_K:
      EXPECT_LE(packed_bytes, file_bytes * 1.03);
      break;
    case WeightType::kQ5_0:
    case WeightType::kQ5_1:
    case WeightType::kQ5_K:
    case WeightType::kQ6_K:
      // Codes of 5 and 6 bits take a byte.
      EXPECT_LE(packed_bytes, file_bytes * 1.57);
      break;
    default:
      EXPECT_EQ(packed_bytes, file_bytes);
  }
}

TEST_P(PackedMatrixTest, ActivationsFor) {
  const std::unique_ptr<TestMatrix> w = RandomMatrix(GetParam(), 2, 256, 1);
  const bool is_float = base::GetWeightType(GetParam()).block_elements == 1;
  for (const Activations mode : kAllModes) {
    EXPECT_EQ(w->packed().ActivationsFor(mode), is_float ? Activations::kF32 : mode);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackedMatrixTest, ::testing::ValuesIn(kAllTypes),
                         [](const auto& param_info) { return TypeName(param_info.param); });

}  // namespace
}  // namespace tokend::cpu
