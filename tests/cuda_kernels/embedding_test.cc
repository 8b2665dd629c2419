// Embed against the double reference, which holds a row's very values.
#include "cuda_kernels/kernels/embedding.h"

#include <cstring>
#include <random>
#include <string>

#include "absl/types/span.h"
#include "core/ops/dequantize.h"
#include "cuda_kernels/backend/packed_weights.h"
#include "tests/cuda_kernels/device_array.h"
#include "tests/support/random_weights.h"

namespace tokend::cuda {
namespace {

using base::WeightType;

// A random table, packed as a backend would.
struct Table {
  Table(WeightType type, int64_t rows, int64_t cols, bool pair, uint64_t seed)
      : random(seed),
        bytes(testing::RandomWeights(type, static_cast<uint64_t>(rows * cols), 1.0f, random)),
        source{type, rows, cols, reinterpret_cast<const std::byte*>(bytes.data())},
        packed(static_cast<size_t>(PackedBytes(source, pair, false))) {
    std::vector<unsigned char> host(packed.size());
    EXPECT_TRUE(PackWeights(source, pair, "table", reinterpret_cast<std::byte*>(host.data())).ok());
    packed.Upload(host);
    view = PackedView(source, pair, false, packed.data());
  }

  std::vector<float> Row(int64_t row) const {
    std::vector<float> values(static_cast<size_t>(source.cols));
    ops::DequantizeRowRef(source.type, source.data + row * ops::RowBytes(source),
                          absl::MakeSpan(values));
    return values;
  }

  std::mt19937_64 random;
  std::string bytes;
  ops::Matrix source;
  DeviceArray<unsigned char> packed;
  PackedMatrix view;
};

class EmbeddingTest : public DeviceTest {
 protected:
  static std::vector<float> Run(EmbeddingParams params, const std::vector<int32_t>& tokens,
                                const std::vector<int64_t>& positions, int64_t stride) {
    const DeviceArray<int32_t> device_tokens(tokens);
    const DeviceArray<int64_t> device_positions(positions);
    DeviceArray<float> x(tokens.size() * static_cast<size_t>(stride));
    params.rows = static_cast<int>(tokens.size());
    params.tokens = device_tokens.data();
    params.row_positions = positions.empty() ? nullptr : device_positions.data();
    params.x = x.data();
    params.x_stride = stride;
    const absl::Status status = Embed(params, nullptr);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return x.Download();
  }
};

TEST_F(EmbeddingTest, EveryQuantisedTypeGivesTheFilesValues) {
  for (const WeightType type : {WeightType::kF16, WeightType::kQ4_0, WeightType::kQ4_1,
                                WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ8_0,
                                WeightType::kQ4_K, WeightType::kQ5_K, WeightType::kQ6_K}) {
    const std::string name(base::GetWeightType(type).name);
    const int64_t cols = type == WeightType::kF16 ? 72 : 768;
    const Table table(type, 37, cols, false, 3);
    EmbeddingParams params;
    params.table = table.view;
    const std::vector<int32_t> tokens = {0, 36, 7, 8, 15, 16, 31, 7};
    const std::vector<float> got = Run(params, tokens, {}, cols + 8);
    for (size_t row = 0; row < tokens.size(); ++row) {
      const std::vector<float> want = table.Row(tokens[row]);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got[row * (want.size() + 8) + i], want[i])
            << name << " row " << row << " column " << i;
      }
    }
  }
}

TEST_F(EmbeddingTest, PairsHoldMoreThanF16) {
  for (const bool pair : {false, true}) {
    const Table table(WeightType::kF32, 20, 200, pair, 4);
    EmbeddingParams params;
    params.table = table.view;
    const std::vector<float> got = Run(params, {19}, {}, 200);
    const std::vector<float> want = table.Row(19);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], (pair ? 0x1p-22 : 0x1p-11) * std::abs(want[i]) + 0x1p-25);
    }
  }
}

TEST_F(EmbeddingTest, ScalesTheTokenAndAddsThePosition) {
  const Table table(WeightType::kQ6_K, 20, 256, false, 5);
  const Table positions(WeightType::kF16, 50, 256, false, 6);
  EmbeddingParams params;
  params.table = table.view;
  params.positions = positions.view;
  params.scale = 3.3f;
  const std::vector<int32_t> tokens = {4, 4, 19};
  const std::vector<int64_t> at = {0, 49, 17};
  const std::vector<float> got = Run(params, tokens, at, 256);
  for (size_t row = 0; row < tokens.size(); ++row) {
    const std::vector<float> token = table.Row(tokens[row]), position = positions.Row(at[row]);
    for (size_t i = 0; i < token.size(); ++i) {
      const float scaled = 3.3f * token[i];
      ASSERT_EQ(got[row * 256 + i], scaled + position[i]) << row << " " << i;
    }
  }
}

TEST_F(EmbeddingTest, RefusesTablesThatDoNotFit) {
  const Table table(WeightType::kF16, 20, 64, false, 5);
  const Table positions(WeightType::kF16, 50, 72, false, 6);
  EmbeddingParams params;
  params.rows = 1;
  params.table = table.view;
  params.positions = positions.view;
  EXPECT_EQ(Embed(params, nullptr).code(), absl::StatusCode::kInvalidArgument);
  params.positions = {};
  params.table.gated = true;
  EXPECT_EQ(Embed(params, nullptr).code(), absl::StatusCode::kInvalidArgument);
  params.rows = 0;
  EXPECT_TRUE(Embed(params, nullptr).ok());
}

}  // namespace
}  // namespace tokend::cuda
