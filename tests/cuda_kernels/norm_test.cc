// NormRows and NormInPlace against the double references.
#include "cuda_kernels/kernels/norm.h"

#include <cmath>
#include <limits>
#include <random>

#include "absl/types/span.h"
#include "core/ops/layer_norm.h"
#include "core/ops/rms_norm.h"
#include "tests/cuda_kernels/device_array.h"
#include "tests/support/compare.h"

namespace tokend::cuda {
namespace {

using testing::kEpsF16;
using testing::kEpsF32;

constexpr float kEpsilon = 1e-5f;

std::vector<float> Normal(size_t size, float mean, float deviation, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

// A norm on the device, and what it must give.
struct TestNorm {
  TestNorm(NormKind norm_kind, int width, bool with_bias, uint64_t seed)
      : kind(norm_kind),
        weight(Normal(width, 1, 0.3f, seed)),
        bias(with_bias ? Normal(width, 0, 0.5f, seed + 1) : std::vector<float>()),
        device_weight(weight),
        device_bias(bias) {}

  RowNorm View() const {
    return {kind, device_weight.data(), bias.empty() ? nullptr : device_bias.data(), kEpsilon};
  }

  std::vector<double> Reference(const std::vector<double>& x) const {
    std::vector<double> out(x.size());
    if (kind == NormKind::kRms) {
      ops::RmsNormRef(x, weight, kEpsilon, absl::MakeSpan(out));
    } else {
      ops::LayerNormRef(x, weight, bias, kEpsilon, absl::MakeSpan(out));
    }
    return out;
  }

  // Of each element when the f32 kernel norms `x`: so many roundings as a virtual
  // lane has terms and the tree has levels, in the mean and in the scale.
  std::vector<double> Tolerances(const std::vector<double>& x) const {
    double squares = 0, sum = 0, size = 0;
    for (const double value : x) sum += value;
    const auto count = static_cast<double>(x.size());
    const double mean = kind == NormKind::kRms ? 0 : sum / count;
    for (const double value : x) squares += (value - mean) * (value - mean);
    for (const double value : x) size += std::abs(value) / count;
    const double scale = 1 / std::sqrt(squares / count + kEpsilon);
    const double roundings = count / 128 + 16;
    std::vector<double> tolerances;
    for (size_t i = 0; i < x.size(); ++i) {
      tolerances.push_back(roundings * kEpsF32 * (std::abs(x[i]) + size) * scale *
                               std::abs(weight[i]) +
                           kEpsF32 * (bias.empty() ? 0 : std::abs(bias[i])));
    }
    return tolerances;
  }

  NormKind kind;
  std::vector<float> weight, bias;
  DeviceArray<float> device_weight, device_bias;
};

std::vector<double> Wide(absl::Span<const float> values) { return {values.begin(), values.end()}; }

std::vector<float> Floats(const std::vector<__half>& halves) {
  std::vector<float> floats;
  for (const __half half : halves) floats.push_back(__half2float(half));
  return floats;
}

class NormTest : public DeviceTest {
 protected:
  struct Result {
    std::vector<float> x, hi, lo;
    unsigned saturations;
  };

  // `rows` may be fewer than x has.
  Result Run(NormRowsParams params, const std::vector<float>& x, const std::vector<float>& y,
             const std::vector<int32_t>& row_index, bool pair) {
    DeviceArray<float> device_x(x), device_y(y);
    const DeviceArray<int32_t> device_index(row_index);
    const size_t stride = static_cast<size_t>(params.width + 7) / 8 * 8;
    DeviceArray<__half> hi(static_cast<size_t>(params.rows) * stride), lo(hi.size());
    DeviceArray<unsigned> saturations(std::vector<unsigned>{0});
    params.x = device_x.data();
    params.x_stride = params.y_stride = params.width;
    if (!y.empty()) params.y = device_y.data();
    if (!row_index.empty()) params.row_index = device_index.data();
    params.out = {hi.data(), pair ? lo.data() : nullptr, static_cast<int64_t>(stride)};
    params.saturations = saturations.data();
    const absl::Status status = NormRows(params, nullptr);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return {device_x.Download(), Packed(hi, params.width, stride), Packed(lo, params.width, stride),
            saturations.Download()[0]};
  }

  static std::vector<float> Packed(const DeviceArray<__half>& rows, int width, size_t stride) {
    const std::vector<float> all = Floats(rows.Download());
    std::vector<float> packed;
    for (size_t at = 0; at < all.size(); at += stride) {
      packed.insert(packed.end(), all.begin() + at, all.begin() + at + width);
    }
    return packed;
  }

  // Row `row` of `values` within tolerances that f16, or hi + lo, adds to.
  static void ExpectNear(const Result& got, size_t row, const std::vector<double>& want,
                         std::vector<double> tolerances, bool pair) {
    const size_t width = want.size();
    std::vector<float> values(got.hi.begin() + row * width, got.hi.begin() + (row + 1) * width);
    for (size_t i = 0; i < width; ++i) {
      if (pair) values[i] += got.lo[row * width + i];
      tolerances[i] += (pair ? kEpsF16 * kEpsF16 : kEpsF16) * std::abs(want[i]) + 0x1p-24;
    }
    EXPECT_TRUE(testing::Near(values, want, tolerances)) << "row " << row << " width " << width;
  }
};

TEST_F(NormTest, NormsEveryRow) {
  for (const int width : {4, 8, 124, 128, 132, 512, 516, 2052}) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      for (const bool pair : {false, true}) {
        const TestNorm norm(kind, width, kind == NormKind::kLayer, 5);
        const std::vector<float> x = Normal(3 * static_cast<size_t>(width), 0.7f, 2, 7);
        NormRowsParams params;
        params.rows = 3;
        params.width = width;
        params.norm = norm.View();
        const Result got = Run(params, x, {}, {}, pair);
        EXPECT_EQ(got.x, x);
        EXPECT_EQ(got.saturations, 0u);
        for (size_t row = 0; row < 3; ++row) {
          const auto from = Wide(absl::MakeConstSpan(x).subspan(row * width, width));
          ExpectNear(got, row, norm.Reference(from), norm.Tolerances(from), pair);
        }
      }
    }
  }
}

TEST_F(NormTest, AddsTheNormOfASublayerFirst) {
  constexpr int kWidth = 260;
  for (const bool with_post : {false, true}) {
    const TestNorm norm(NormKind::kLayer, kWidth, true, 5);
    const TestNorm post(NormKind::kRms, kWidth, false, 8);
    const std::vector<float> x = Normal(2 * kWidth, 0, 2, 7), y = Normal(2 * kWidth, 0, 3, 8);
    NormRowsParams params;
    params.rows = 2;
    params.width = kWidth;
    params.norm = norm.View();
    params.scale = 0.25f;
    if (with_post) params.post = post.View();
    const Result got = Run(params, x, y, {}, true);
    for (size_t row = 0; row < 2; ++row) {
      const auto from = Wide(absl::MakeConstSpan(y).subspan(row * kWidth, kWidth));
      const std::vector<double> added = with_post ? post.Reference(from) : from;
      std::vector<double> tolerances = post.Tolerances(from);
      std::vector<double> want = Wide(absl::MakeConstSpan(x).subspan(row * kWidth, kWidth));
      for (size_t i = 0; i < want.size(); ++i) {
        want[i] += 0.25 * added[i];
        tolerances[i] = 0.25 * tolerances[i] + kEpsF32 * std::abs(want[i]);
      }
      const auto sum = absl::MakeConstSpan(got.x).subspan(row * kWidth, kWidth);
      EXPECT_TRUE(testing::Near(sum, want, tolerances)) << with_post;
      ExpectNear(got, row, norm.Reference(Wide(sum)), norm.Tolerances(Wide(sum)), true);
    }
  }
}

TEST_F(NormTest, TakesTheRowsOfAnIndexWithTheSameBits) {
  constexpr int kWidth = 100;
  const TestNorm norm(NormKind::kRms, kWidth, false, 5);
  const std::vector<float> x = Normal(5 * kWidth, 0, 2, 7);
  NormRowsParams params;
  params.rows = 5;
  params.width = kWidth;
  params.norm = norm.View();
  const Result all = Run(params, x, {}, {}, true);
  params.rows = 2;
  const Result some = Run(params, x, {}, {1, 4}, true);
  for (int i = 0; i < kWidth; ++i) {
    EXPECT_EQ(some.hi[i], all.hi[kWidth + i]);
    EXPECT_EQ(some.lo[kWidth + i], all.lo[4 * kWidth + i]);
  }
}

TEST_F(NormTest, WithoutWeightRoundsAndCountsWhatDoesNotFit) {
  NormRowsParams params;
  params.rows = 1;
  params.width = 8;
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Result got = Run(params, {1.0001f, 65504, 65519, 65520, -1e9f, inf, nan, 0}, {}, {}, true);
  EXPECT_EQ(got.saturations, 3u);
  EXPECT_EQ(got.hi[0], 1.0f);
  EXPECT_NEAR(got.lo[0], 1e-4f, 1e-7);
  EXPECT_EQ(std::vector<float>(got.hi.begin() + 1, got.hi.begin() + 6),
            std::vector<float>({65504, 65504, 65504, -65504, 65504}));
  EXPECT_EQ(got.lo[3], 0.0f);
  EXPECT_TRUE(std::isnan(got.hi[6]));
}

TEST_F(NormTest, InPlaceKeepsF32) {
  constexpr int kWidth = 192, kStride = 256;
  const TestNorm norm(NormKind::kRms, kWidth, false, 5);
  const std::vector<float> x = Normal(3 * kStride, 0, 2, 7);
  DeviceArray<float> values(x);
  ASSERT_TRUE(NormInPlace({3, kWidth, values.data(), kStride, norm.View()}, nullptr).ok());
  const std::vector<float> got = values.Download();
  for (size_t row = 0; row < 3; ++row) {
    const auto from = Wide(absl::MakeConstSpan(x).subspan(row * kStride, kWidth));
    EXPECT_TRUE(testing::Near(absl::MakeConstSpan(got).subspan(row * kStride, kWidth),
                              norm.Reference(from), norm.Tolerances(from)));
    for (size_t i = row * kStride + kWidth; i < (row + 1) * kStride; ++i) EXPECT_EQ(got[i], x[i]);
  }
}

TEST_F(NormTest, RefusesWidthsThatAreNoMultipleOfFour) {
  NormRowsParams params;
  params.rows = 1;
  params.width = 6;
  EXPECT_EQ(NormRows(params, nullptr).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NormInPlace({1, 6, nullptr, 8, {}}, nullptr).code(),
            absl::StatusCode::kInvalidArgument);
  params.rows = 0;
  EXPECT_TRUE(NormRows(params, nullptr).ok());
}

}  // namespace
}  // namespace tokend::cuda
