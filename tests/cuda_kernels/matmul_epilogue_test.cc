// What comes before and after the product: norms, biases, activations, residuals.
#include <limits>

#include "core/ops/activation.h"
#include "cuda_kernels/kernels/matmul.h"
#include "cuda_kernels/kernels/norm.h"
#include "tests/cuda_kernels/matmul_rig.h"

namespace tokend::cuda {
namespace {

using testing::kEpsF16;
using testing::kEpsF32;
using testing::Near;
using testing::SameBits;

constexpr int kCols = 96;
constexpr size_t kWidth = kCols;
constexpr int kRowCounts[] = {1, 3, 40};  // decode and wide

class MatmulEpilogueTest : public DeviceTest {
 protected:
  DeviceArray<unsigned> saturations_ = DeviceArray<unsigned>(std::vector<unsigned>{0});
};

// Expectations of one launch, element by element.
struct Expected {
  std::vector<double> want;
  std::vector<double> tolerances;

  void Add(double value, double tolerance) {
    want.push_back(value);
    tolerances.push_back(tolerance + 4 * kEpsF32 * std::fabs(value));
  }
};

std::vector<float> Floats(const std::vector<__half>& hi, const std::vector<__half>& lo) {
  std::vector<float> values(hi.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = ops::F16ToF32(__half_as_ushort(hi[i]));
    if (!lo.empty()) values[i] += ops::F16ToF32(__half_as_ushort(lo[i]));
  }
  return values;
}

TEST_F(MatmulEpilogueTest, StoresSeveralMatricesWithBiasScaleAndCap) {
  const TestMatrix first(WeightType::kQ4_0, 24, kCols, 1);
  const TestMatrix second(WeightType::kF16, 5, kCols, 2);
  const TestMatrix third(WeightType::kQ8_0, 16, kCols, 3);
  const TestMatrix* matrices[] = {&first, &second, &third};
  const int offsets[] = {0, 24, 29};
  constexpr size_t kStride = 50;
  const std::vector<float> bias = RandomFloats(24, 4);
  DeviceArray<float> device_bias(bias);
  for (const int rows : kRowCounts) {
    const auto count = static_cast<size_t>(rows);
    TestRows x(RandomFloats(count * kWidth, 5), kWidth, false);
    DeviceArray<float> out(std::vector<float>(count * kStride, -7));
    Matmul matmul;
    matmul.rows = rows;
    matmul.input.half = x.view();
    matmul.segment_count = 3;
    for (int s = 0; s < 3; ++s) {
      matmul.segments[s].matrix = matrices[s]->view();
      matmul.segments[s].output_offset = offsets[s];
    }
    matmul.segments[0].bias = device_bias.data();
    matmul.output.out = out.data();
    matmul.output.out_stride = kStride;
    matmul.output.scale = 0.5f;
    matmul.output.soft_cap = 2;
    ASSERT_TRUE(RunMatmul(matmul, HopperLike(), nullptr).ok());
    Expected expected;
    for (size_t row = 0; row < count; ++row) {
      for (int s = 0; s < 3; ++s) {
        for (size_t o = 0; o < matrices[s]->outputs(); ++o) {
          const std::vector<double> w = matrices[s]->Row(o);
          const double y = Dot(x.Held(row), w) + (s == 0 ? bias[o] : 0.0f);
          expected.Add(2 * std::tanh(0.5 * y / 2), 0.5 * MatmulTolerance(x.Held(row), w));
        }
      }
      for (size_t pad = 45; pad < kStride; ++pad) expected.Add(-7, 0);
    }
    EXPECT_TRUE(Near(out.Download(), expected.want, expected.tolerances)) << rows << " rows";
  }
}

TEST_F(MatmulEpilogueTest, AddsToTheResidualStream) {
  const TestMatrix matrix(WeightType::kQ4_1, 20, kCols, 1);
  const std::vector<float> bias = RandomFloats(20, 4);
  DeviceArray<float> device_bias(bias);
  for (const int rows : kRowCounts) {
    const auto count = static_cast<size_t>(rows);
    TestRows x(RandomFloats(count * kWidth, 5), kWidth, false);
    const std::vector<float> before = RandomFloats(count * 20, 6);
    DeviceArray<float> residual(before);
    Matmul matmul;
    matmul.rows = rows;
    matmul.input.half = x.view();
    matmul.segments[0].matrix = matrix.view();
    matmul.segments[0].bias = device_bias.data();
    matmul.output.epilogue = MatmulEpilogue::kAdd;
    matmul.output.out = residual.data();
    matmul.output.out_stride = 20;
    matmul.output.scale = 0.25f;
    ASSERT_TRUE(RunMatmul(matmul, AmpereLike(), nullptr).ok());
    Expected expected;
    for (size_t row = 0; row < count; ++row) {
      for (size_t o = 0; o < 20; ++o) {
        const std::vector<double> w = matrix.Row(o);
        expected.Add(before[row * 20 + o] + 0.25 * (Dot(x.Held(row), w) + bias[o]),
                     MatmulTolerance(x.Held(row), w));
      }
    }
    EXPECT_TRUE(Near(residual.Download(), expected.want, expected.tolerances)) << rows << " rows";
  }
}

// An activation's slope is below 1.13, and |x| <= 40 of the gate times the error of up.
TEST_F(MatmulEpilogueTest, ActivatesWithAndWithoutGate) {
  constexpr size_t kOutputs = 21;
  constexpr size_t kStride = 24;
  const std::vector<float> bias = RandomFloats(kOutputs, 4);
  const std::vector<float> up_bias = RandomFloats(kOutputs, 5);
  DeviceArray<float> device_bias(bias);
  DeviceArray<float> device_up_bias(up_bias);
  for (const bool gated : {false, true}) {
    for (const bool pair : {false, true}) {
      const TestMatrix matrix(WeightType::kQ5_0, kOutputs, kCols, 1, pair, gated);
      for (const auto activation :
           {ops::Activation::kSilu, ops::Activation::kGeluTanh, ops::Activation::kGelu}) {
        for (const int rows : kRowCounts) {
          const auto count = static_cast<size_t>(rows);
          TestRows x(RandomFloats(count * kWidth, 5), kWidth, pair);
          DeviceArray<__half> hi(count * kStride);
          DeviceArray<__half> lo(pair ? count * kStride : 0);
          Matmul matmul;
          matmul.rows = rows;
          matmul.input.half = x.view();
          matmul.segments[0].matrix = matrix.view();
          matmul.segments[0].bias = device_bias.data();
          matmul.segments[0].up_bias = gated ? device_up_bias.data() : nullptr;
          matmul.output.epilogue = gated ? MatmulEpilogue::kGate : MatmulEpilogue::kActivate;
          matmul.output.activation = activation;
          matmul.output.half.hi = hi.data();
          matmul.output.half.lo = pair ? lo.data() : nullptr;
          matmul.output.half.stride = kStride;
          matmul.saturations = saturations_.data();
          ASSERT_TRUE(RunMatmul(matmul, HopperLike(), nullptr).ok());
          const std::vector<float> all =
              Floats(hi.Download(), pair ? lo.Download() : std::vector<__half>());
          Expected expected;
          std::vector<float> got;
          for (size_t row = 0; row < count; ++row) {
            for (size_t o = 0; o < kOutputs; ++o) {
              const std::vector<double> w = matrix.Row(o);
              const double gate = Dot(x.Held(row), w) + bias[o];
              double value = ops::Activate(activation, gate);
              double tolerance = 1.2 * MatmulTolerance(x.Held(row), w);
              if (gated) {
                const std::vector<double> up_row = matrix.Row(o, true);
                const double up = Dot(x.Held(row), up_row) + up_bias[o];
                tolerance = tolerance * std::fabs(up) +
                            std::fabs(value) * MatmulTolerance(x.Held(row), up_row);
                value *= up;
              }
              // Subnormals of f16 and, in pairs, of their low half are 2^-24 apart.
              tolerance += (pair ? kEpsF16 * kEpsF16 : kEpsF16) * std::fabs(value) + 0x1p-24;
              // 1 + tanh cancels where x is negative: its terms are 1.
              tolerance += 8 * kEpsF32 * (1 + std::fabs(gate));
              expected.Add(value, tolerance);
              got.push_back(all[row * kStride + o]);
            }
          }
          EXPECT_TRUE(Near(got, expected.want, expected.tolerances))
              << rows << " rows, gated " << gated << " pair " << pair;
        }
      }
    }
  }
  EXPECT_EQ(saturations_.Download()[0], 0u);
}

TEST_F(MatmulEpilogueTest, SaturatesAndCounts) {
  const TestMatrix matrix(WeightType::kF16, 16, kCols, 1);
  std::vector<float> values(2 * kWidth, 0);
  values[0] = 60000;
  TestRows x(values, kWidth, false);
  const std::vector<float> bias(16, 65000);
  DeviceArray<float> device_bias(bias);
  DeviceArray<__half> hi(2 * 16);
  Matmul matmul;
  matmul.rows = 2;
  matmul.input.half = x.view();
  matmul.segments[0].matrix = matrix.view();
  matmul.segments[0].bias = device_bias.data();
  matmul.output.epilogue = MatmulEpilogue::kActivate;
  matmul.output.half.hi = hi.data();
  matmul.output.half.stride = 16;
  matmul.saturations = saturations_.data();
  // 65000 + 60000 w rounds to Inf where w > 0.0087.
  ASSERT_TRUE(RunMatmul(matmul, HopperLike(), nullptr).ok());
  unsigned expected = 0;
  const std::vector<__half> got = hi.Download();
  for (size_t o = 0; o < 16; ++o) {
    const double y = 65000 + 60000 * matrix.Row(o)[0];
    if (y >= 65520) {
      ++expected;
      EXPECT_EQ(ops::F16ToF32(__half_as_ushort(got[o])), 65504.0f);
    }
  }
  EXPECT_GT(expected, 0u);
  EXPECT_EQ(saturations_.Download()[0], expected);
}

// The prologue's rows are those of the norm kernel, bit for bit.
TEST_F(MatmulEpilogueTest, NormsAsTheNormKernelDoes) {
  for (const int cols : {40, 96, 640}) {
    const auto width = static_cast<size_t>(cols);
    DeviceArray<float> weight(RandomFloats(width, 1));
    DeviceArray<float> bias(RandomFloats(width, 2));
    for (const bool pair : {false, true}) {
      const TestMatrix matrix(WeightType::kF16, 40, cols, 3, pair);
      for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
        for (int rows = 1; rows <= kMaxNormedRows; ++rows) {
          const auto count = static_cast<size_t>(rows);
          const size_t stride = width + 4;
          DeviceArray<float> residual(RandomFloats(count * stride, 7, 10));
          DeviceArray<float> outs[2] = {DeviceArray<float>(count * 40),
                                        DeviceArray<float>(count * 40)};
          Matmul matmul;
          matmul.rows = rows;
          matmul.segments[0].matrix = matrix.view();
          matmul.output.out_stride = 40;
          matmul.saturations = saturations_.data();
          matmul.input.residual = residual.data();
          matmul.input.residual_stride = static_cast<int64_t>(stride);
          matmul.input.norm = {kind, weight.data(),
                               kind == NormKind::kLayer ? bias.data() : nullptr, 1e-5f};
          matmul.input.pair = pair;
          matmul.output.out = outs[0].data();
          ASSERT_TRUE(RunMatmul(matmul, HopperLike(), nullptr).ok());

          TestRows normed(std::vector<float>(count * width, 0), width, pair);
          NormRowsParams norm;
          norm.rows = rows;
          norm.width = cols;
          norm.x = residual.data();
          norm.x_stride = static_cast<int64_t>(stride);
          norm.norm = matmul.input.norm;
          norm.out = normed.view();
          norm.saturations = saturations_.data();
          ASSERT_TRUE(NormRows(norm, nullptr).ok());
          matmul.input = {};
          matmul.input.half = normed.view();
          matmul.output.out = outs[1].data();
          ASSERT_TRUE(RunMatmul(matmul, HopperLike(), nullptr).ok());
          EXPECT_TRUE(SameBits(outs[0].Download(), outs[1].Download()))
              << cols << " cols, " << rows << " rows, pair " << pair;
        }
      }
    }
  }
  EXPECT_EQ(saturations_.Download()[0], 0u);
}

TEST_F(MatmulEpilogueTest, RefusesWhatNoKernelTakes) {
  const TestMatrix matrix(WeightType::kF16, 16, kCols, 1);
  TestRows x(RandomFloats(kWidth, 5), kWidth, false);
  DeviceArray<float> out(16);
  Matmul good;
  good.rows = 1;
  good.input.half = x.view();
  good.segments[0].matrix = matrix.view();
  good.output.out = out.data();
  good.output.out_stride = 16;
  ASSERT_TRUE(RunMatmul(good, HopperLike(), nullptr).ok());
  std::vector<Matmul> bad(6, good);
  bad[0].rows = 0;
  bad[1].segment_count = kMaxMatmulSegments + 1;
  bad[2].output.epilogue = MatmulEpilogue::kGate;
  bad[3].segments[0].matrix.format = PackedFormat::kF16Pair;
  bad[4].segments[0].matrix.cols = 12;
  bad[5].segment_count = 2;  // of which the second has no outputs
  for (const Matmul& matmul : bad) {
    EXPECT_EQ(RunMatmul(matmul, HopperLike(), nullptr).code(), absl::StatusCode::kInvalidArgument);
  }
  DeviceInfo small = HopperLike();
  small.shared_bytes_per_multiprocessor = 8192;
  small.shared_bytes_per_block = 8192;
  EXPECT_EQ(RunMatmul(good, small, nullptr).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tokend::cuda
