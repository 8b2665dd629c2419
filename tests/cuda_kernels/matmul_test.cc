#include "cuda_kernels/kernels/matmul.h"

#include <algorithm>
#include <limits>

#include "tests/cuda_kernels/matmul_rig.h"

namespace tokend::cuda {
namespace {

using testing::Near;
using testing::SameBits;

class MatmulTest : public DeviceTest {};

Matmul StoreOf(const TestMatrix& matrix, TestRows& x, DeviceArray<float>& out) {
  Matmul matmul;
  matmul.rows = x.rows();
  matmul.input.half = x.view();
  matmul.segments[0].matrix = matrix.view();
  matmul.output.out = out.data();
  matmul.output.out_stride = static_cast<int64_t>(matrix.outputs());
  return matmul;
}

std::vector<float> Multiply(const TestMatrix& matrix, TestRows& x,
                            const DeviceInfo& device = HopperLike()) {
  DeviceArray<float> out(static_cast<size_t>(x.rows()) * matrix.outputs());
  const absl::Status status = RunMatmul(StoreOf(matrix, x, out), device, nullptr);
  EXPECT_TRUE(status.ok()) << status;
  return out.Download();
}

void ExpectProduct(const TestMatrix& matrix, const TestRows& x, const std::vector<float>& got) {
  std::vector<double> want;
  std::vector<double> tolerances;
  for (size_t row = 0; row < static_cast<size_t>(x.rows()); ++row) {
    for (size_t o = 0; o < matrix.outputs(); ++o) {
      const std::vector<double> w = matrix.Row(o);
      want.push_back(Dot(x.Held(row), w));
      tolerances.push_back(MatmulTolerance(x.Held(row), w));
    }
  }
  EXPECT_TRUE(Near(got, want, tolerances));
}

// Inputs that a type takes: few, odd in blocks, and more than eight records.
std::vector<int> ColsFor(WeightType type) {
  const int block = base::GetWeightType(type).block_elements;
  if (block == 256) return {256, 768, 2304};
  if (block == 32) return {32, 96, 352};
  return {8, 40, 96, 352};
}

TEST_F(MatmulTest, EveryTypeMatchesItsReference) {
  for (const bool pair : {false, true}) {
    for (const WeightType type : kAllTypes) {
      for (const int cols : ColsFor(type)) {
        const int outputs = cols % 3 == 0 ? 37 : 16;
        const TestMatrix matrix(type, outputs, cols, 17, pair);
        for (const int rows : {1, 11}) {
          SCOPED_TRACE(::testing::Message() << TypeName(type) << " cols " << cols << " rows "
                                            << rows << " pair " << pair);
          TestRows x(RandomFloats(static_cast<size_t>(rows * cols), 5), static_cast<size_t>(cols),
                     pair);
          ExpectProduct(matrix, x, Multiply(matrix, x));
        }
      }
    }
  }
}

// Blocks that go through several tiles, with one chunk and with eight, and a device on
// which each has its own.
TEST_F(MatmulTest, TilesDoNotDependOnTheBlockThatTakesThem) {
  DeviceInfo narrow = HopperLike();
  narrow.multiprocessors = 1;
  DeviceInfo broad = HopperLike();
  broad.multiprocessors = 64;
  for (const WeightType type : {WeightType::kF16, WeightType::kQ4_0, WeightType::kQ6_K}) {
    const std::vector<int> all_cols = ColsFor(type);
    for (const int cols : {all_cols.front(), all_cols.back()}) {
      SCOPED_TRACE(::testing::Message() << TypeName(type) << " cols " << cols);
      const TestMatrix matrix(type, 16 * 70 + 3, cols, 23);
      TestRows x(RandomFloats(static_cast<size_t>(2 * cols), 5), static_cast<size_t>(cols), false);
      const std::vector<float> got = Multiply(matrix, x, narrow);
      ExpectProduct(matrix, x, got);
      EXPECT_TRUE(SameBits(got, Multiply(matrix, x, broad)));
    }
  }
}

// The bits of a row do not depend on its neighbours, their number or the device.
TEST_F(MatmulTest, RowsDoNotDependOnOtherRows) {
  for (const bool pair : {false, true}) {
    for (const WeightType type : kAllTypes) {
      SCOPED_TRACE(::testing::Message() << TypeName(type) << " pair " << pair);
      const int block = base::GetWeightType(type).block_elements;
      const int cols = block == 256 ? 768 : 352;
      const auto width = static_cast<size_t>(cols);
      const TestMatrix matrix(type, 21, cols, 3, pair);
      constexpr size_t kOutputs = 21;
      const std::vector<float> row = RandomFloats(width, 8);
      TestRows alone(row, width, pair);
      const std::vector<float> expected = Multiply(matrix, alone);
      for (const int rows : {2, 4, 8, 9, 32, 33, 128, 200}) {
        if (rows == 200 && type != WeightType::kQ4_K && type != WeightType::kF16) continue;
        const auto count = static_cast<size_t>(rows);
        std::vector<float> values = RandomFloats(count * width, 9, 1000);
        const std::vector<size_t> places = {0, count / 2, count - 1};
        // Every second neighbour is NaN.
        for (size_t i = width; i < values.size(); i += 2 * width) {
          std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(i), width,
                      std::numeric_limits<float>::quiet_NaN());
        }
        for (const size_t place : places) {
          std::copy(row.begin(), row.end(),
                    values.begin() + static_cast<std::ptrdiff_t>(place * width));
        }
        TestRows x(values, width, pair);
        const std::vector<float> got =
            Multiply(matrix, x, rows % 2 == 0 ? HopperLike() : AmpereLike());
        for (const size_t place : places) {
          EXPECT_TRUE(
              SameBits(absl::MakeConstSpan(got).subspan(place * kOutputs, kOutputs), expected))
              << rows << " rows, row " << place;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tokend::cuda
