#include "core/cpu/vector_kernels.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/cpu/cpu_features.h"
#include "core/cpu/rope_angles.h"
#include "core/ops/activation.h"
#include "core/ops/half.h"
#include "core/ops/layer_norm.h"
#include "core/ops/rms_norm.h"
#include "core/ops/rope.h"
#include "core/ops/soft_cap.h"
#include "gtest/gtest.h"
#include "tests/support/compare.h"
#include "tests/support/guarded_buffer.h"

namespace tokend::cpu {
namespace {

using testing::GuardedBuffer;
using testing::kEpsF32;
using testing::Near;
using testing::SameBits;

// Vector width +- 1, four vectors +- 1, a real model's width.
constexpr size_t kSizes[] = {1, 2, 15, 16, 17, 31, 63, 64, 65, 100, 576};

std::vector<float> Normal(size_t size, uint64_t seed, float scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<double> Wide(absl::Span<const float> values) {
  return std::vector<double>(values.begin(), values.end());
}

class VectorKernelsTest : public ::testing::TestWithParam<Isa> {
 protected:
  const VectorKernels& kernels_ = GetVectorKernels(GetParam());
  const VectorKernels& plain_ = GetVectorKernels(Isa::kPlain);
};

TEST_P(VectorKernelsTest, RmsNorm) {
  for (const size_t n : kSizes) {
    const std::vector<float> x = Normal(n, n), weight = Normal(n, n + 1);
    std::vector<double> want(n);
    ops::RmsNormRef(Wide(x), weight, 1e-5, absl::MakeSpan(want));
    GuardedBuffer<float> got(n, 1);
    kernels_.rms_norm(x.data(), weight.data(), static_cast<int64_t>(n), 1e-5f, got.data());
    // The sum of squares goes through n / 64 + 8 roundings, relative to itself;
    // half of that after the root; five more operations follow.
    std::vector<double> tolerance(n);
    for (size_t i = 0; i < n; ++i) {
      tolerance[i] = std::abs(want[i]) * kEpsF32 * (static_cast<double>(n) / 64 + 8 + 5) + 1e-12;
    }
    EXPECT_TRUE(Near(got.view(), want, tolerance)) << n;
    EXPECT_TRUE(got.Intact());
    GuardedBuffer<float> plain(n);
    plain_.rms_norm(x.data(), weight.data(), static_cast<int64_t>(n), 1e-5f, plain.data());
    EXPECT_TRUE(SameBits(got.view(), plain.view())) << n;
  }
}

TEST_P(VectorKernelsTest, LayerNorm) {
  for (const size_t n : kSizes) {
    // Far from zero: the mean is taken off before squares are summed.
    std::vector<float> x = Normal(n, n);
    for (float& value : x) value += 30;
    const std::vector<float> weight = Normal(n, n + 1), bias = Normal(n, n + 2);
    for (const bool has_bias : {true, false}) {
      std::vector<double> want(n);
      const auto biases = has_bias ? absl::MakeConstSpan(bias) : absl::Span<const float>();
      ops::LayerNormRef(Wide(x), weight, biases, 1e-5, absl::MakeSpan(want));
      const auto run = [&](const VectorKernels& kernels, float* out) {
        kernels.layer_norm(x.data(), weight.data(), has_bias ? bias.data() : nullptr,
                           static_cast<int64_t>(n), 1e-5f, out);
      };
      GuardedBuffer<float> got(n, 1);
      run(kernels_, got.data());
      // The mean goes through n / 64 + 8 roundings of 34, the same for all i; what that
      // costs is scaled by 1 / deviation, at most 1 / sqrt(epsilon) where all are equal.
      double mean = 0, variance = 1e-5;
      for (const float value : x) mean += value / static_cast<double>(n);
      for (const float value : x) {
        variance += (value - mean) * (value - mean) / static_cast<double>(n);
      }
      const double roundings = static_cast<double>(n) / 64 + 13;
      std::vector<double> tolerance(n);
      for (size_t i = 0; i < n; ++i) {
        const double shift = 34 * std::abs(weight[i]) / std::sqrt(variance);
        tolerance[i] = kEpsF32 * roundings * (shift + std::abs(want[i]) + 1);
      }
      EXPECT_TRUE(Near(got.view(), want, tolerance)) << n;
      EXPECT_TRUE(got.Intact());
      GuardedBuffer<float> plain(n);
      run(plain_, plain.data());
      EXPECT_TRUE(SameBits(got.view(), plain.view())) << n;
    }
  }
}

constexpr ops::Activation kAllActivations[] = {ops::Activation::kSilu, ops::Activation::kGeluTanh,
                                               ops::Activation::kGelu};

// Of the exponential in it, with 2 as base.
double Exponent(ops::Activation activation, double z) {
  if (activation == ops::Activation::kSilu) return std::abs(1.5 * z);
  if (activation == ops::Activation::kGelu) return 0.73 * z * z;
  return std::abs(2.4 * z * (1 + 0.045 * z * z));
}

TEST_P(VectorKernelsTest, Activations) {
  for (const ops::Activation activation : kAllActivations) {
    const auto index = static_cast<size_t>(activation);
    for (const size_t n : kSizes) {
      SCOPED_TRACE(::testing::Message() << "activation " << index << ", " << n << " values");
      std::vector<float> gate = Normal(n, n, 4);
      const std::vector<float> up = Normal(n, n + 1);
      const float edges[] = {-200, 200, 0, -87.5f, -1e-20f, 1e20f, 13, -13, -6};
      if (n > 15) std::copy(std::begin(edges), std::end(edges), gate.begin());
      std::vector<double> activated(n), want(n), plain_tolerance(n), tolerance(n);
      ops::ActivateRef(activation, Wide(gate), absl::MakeSpan(activated));
      ops::GatedRef(activation, Wide(gate), Wide(up), absl::MakeSpan(want));
      for (size_t i = 0; i < n; ++i) {
        // The exponential's argument goes through up to 4 roundings, its constants'
        // included, then come the exponential itself and at most 20 steps.
        const double roundings = 4 * std::min(100.0, Exponent(activation, gate[i])) + 20;
        // The reference's own 1 + tanh(u) knows nothing below 2^-53.
        const double own = 1e-28 + 0x1p-51 * std::abs(gate[i] < 0 ? gate[i] : 0);
        plain_tolerance[i] = std::abs(activated[i]) * kEpsF32 * roundings + own;
        tolerance[i] = std::abs(want[i]) * kEpsF32 * (roundings + 1) + own * (1 + std::abs(up[i]));
      }
      GuardedBuffer<float> got(n, 3), alone(n, 3), plain(n), plain_alone(n);
      const auto count = static_cast<int64_t>(n);
      kernels_.gate[index](gate.data(), up.data(), count, got.data());
      kernels_.activate[index](gate.data(), count, alone.data());
      EXPECT_TRUE(Near(got.view(), want, tolerance));
      EXPECT_TRUE(Near(alone.view(), activated, plain_tolerance));
      EXPECT_TRUE(got.Intact() && alone.Intact());
      plain_.gate[index](gate.data(), up.data(), count, plain.data());
      plain_.activate[index](gate.data(), count, plain_alone.data());
      EXPECT_TRUE(SameBits(got.view(), plain.view()));
      EXPECT_TRUE(SameBits(alone.view(), plain_alone.view()));
    }
  }
}

TEST_P(VectorKernelsTest, ActivationsKeepNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float gate[2] = {nan, 1}, up[2] = {1, nan};
  for (size_t i = 0; i < kActivations; ++i) {
    float out[2];
    kernels_.gate[i](gate, up, 2, out);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1])) << i;
    kernels_.activate[i](gate, 2, out);
    EXPECT_TRUE(std::isnan(out[0]) && !std::isnan(out[1])) << i;
  }
}

TEST_P(VectorKernelsTest, ScaleAndCap) {
  for (const size_t n : kSizes) {
    for (const float cap : {0.0f, 3.0f, 30.0f}) {
      std::vector<float> x = Normal(n, n, 10);
      const float edges[] = {0, 1e-30f, -1e-3f, 1e30f, -1e30f, 100, -100};
      if (n > 15) std::copy(std::begin(edges), std::end(edges), x.begin());
      std::vector<double> want(n), tolerance(n);
      for (size_t i = 0; i < n; ++i) {
        want[i] = ops::SoftCap(cap, 0.75 * x[i]);
        tolerance[i] = std::abs(want[i]) * kEpsF32 * (cap == 0 ? 1 : 24);
      }
      GuardedBuffer<float> got(n, 1), plain(n);
      std::copy(x.begin(), x.end(), got.data());
      std::copy(x.begin(), x.end(), plain.data());
      kernels_.scale_and_cap(0.75f, cap, static_cast<int64_t>(n), got.data());
      plain_.scale_and_cap(0.75f, cap, static_cast<int64_t>(n), plain.data());
      EXPECT_TRUE(Near(got.view(), want, tolerance)) << n << ", cap " << cap;
      EXPECT_TRUE(SameBits(got.view(), plain.view())) << n;
      EXPECT_TRUE(got.Intact());
    }
  }
  float nan = std::numeric_limits<float>::quiet_NaN();
  kernels_.scale_and_cap(1, 3, 1, &nan);
  EXPECT_TRUE(std::isnan(nan));
}

TEST_P(VectorKernelsTest, AddScaled) {
  for (const size_t n : kSizes) {
    const std::vector<float> from = Normal(n, n), to = Normal(n, n + 1);
    std::vector<double> want(n);
    for (size_t i = 0; i < n; ++i) want[i] = to[i] + double{from[i]} * 0.22f;
    GuardedBuffer<float> got(n, 1);
    std::copy(to.begin(), to.end(), got.data());
    kernels_.add_scaled(from.data(), 0.22f, static_cast<int64_t>(n), got.data());
    EXPECT_TRUE(Near(got.view(), want, kEpsF32 * 8)) << n;
    EXPECT_TRUE(got.Intact());
    GuardedBuffer<float> plain(n);
    std::copy(to.begin(), to.end(), plain.data());
    plain_.add_scaled(from.data(), 0.22f, static_cast<int64_t>(n), plain.data());
    EXPECT_TRUE(SameBits(got.view(), plain.view())) << n;
  }
}

TEST_P(VectorKernelsTest, Rotate) {
  struct Shape {
    int head_dim, dims;
  };
  for (const auto& [head_dim, dims] :
       {Shape{64, 64}, Shape{20, 20}, Shape{80, 32}, Shape{96, 72}, Shape{16, 2}, Shape{33, 0}}) {
    for (const auto pairing : {ops::RopePairing::kInterleaved, ops::RopePairing::kHalves}) {
      ops::Rope rope{pairing, dims, {}, /*magnitude=*/dims % 4 == 0 ? 1.19 : 1};
      for (int i = 0; i < dims / 2; ++i) {
        rope.inverse_frequencies.push_back(std::pow(10000.0, -2.0 * i / dims));
      }
      const int64_t position = 123'456;
      const std::vector<float> head = Normal(static_cast<size_t>(head_dim), 5);
      std::vector<double> want = Wide(head);
      ops::RopeRef(rope, position, head_dim, absl::MakeSpan(want));
      for (double& value : want) value *= 0.25;
      RopeAngles angles(rope, 2);
      angles.SetRow(1, position);
      GuardedBuffer<float> got(want.size(), 1);
      kernels_.rotate(head.data(), angles.Row(1), head_dim, 0.25f, got.data());
      // Angles rounded once, two products and a sum: 4 roundings of |a| + |b|.
      EXPECT_TRUE(Near(got.view(), want, 0.25 * 4 * kEpsF32 * 8)) << head_dim << " " << dims;
      EXPECT_TRUE(got.Intact());
      GuardedBuffer<float> plain(want.size());
      plain_.rotate(head.data(), angles.Row(1), head_dim, 0.25f, plain.data());
      EXPECT_TRUE(SameBits(got.view(), plain.view()));
    }
  }
}

// A half page back as f32, [kv_head][position][dimension]; `transposed`: keys.
std::vector<float> Decode(const KvLayout& layout, const std::byte* half, bool transposed) {
  std::vector<float> values;
  for (int head = 0; head < layout.kv_heads; ++head) {
    for (int slot = 0; slot < layout.page_tokens; ++slot) {
      for (int d = 0; d < layout.head_dim; ++d) {
        const int64_t at = transposed ? int64_t{d} * layout.page_tokens + slot
                                      : int64_t{slot} * layout.head_dim + d;
        const std::byte* codes = half + head * layout.head_bytes();
        if (layout.dtype == base::KvDtype::kF32) {
          values.push_back(reinterpret_cast<const float*>(codes)[at]);
        } else if (layout.dtype == base::KvDtype::kF16) {
          values.push_back(ops::F16ToF32(reinterpret_cast<const uint16_t*>(codes)[at]));
        } else {
          const auto* scales = reinterpret_cast<const uint16_t*>(half + layout.scale_offset(head));
          values.push_back(ops::F16ToF32(scales[slot]) *
                           static_cast<float>(reinterpret_cast<const int8_t*>(codes)[at]));
        }
      }
    }
  }
  return values;
}

TEST_P(VectorKernelsTest, StoreKvWritesItsRowAndNothingElse) {
  for (const auto dtype : {base::KvDtype::kF32, base::KvDtype::kF16, base::KvDtype::kInt8}) {
    for (const int page_tokens : {16, 32}) {
      for (const int head_dim : {16, 20, 64, 100}) {
        const KvLayout layout = {dtype, page_tokens, 3, head_dim};
        const auto half = static_cast<size_t>(layout.half_page_bytes());
        GuardedBuffer<std::byte> keys(half), values(half);
        const KvSlot slot = {keys.data(), values.data(), page_tokens - 3};
        const auto n = static_cast<size_t>(head_dim);
        const std::vector<float> key = Normal(n, 1), value = Normal(n, 2);
        kernels_.store_kv(layout, slot, 1, key.data(), value.data());
        EXPECT_TRUE(keys.Intact() && values.Intact());
        for (const bool transposed : {true, false}) {
          const std::vector<float>& want = transposed ? key : value;
          const std::vector<float> got =
              Decode(layout, (transposed ? keys : values).data(), transposed);
          const size_t at = (static_cast<size_t>(page_tokens) + slot.slot) * n;
          float largest = 0;
          for (const float x : want) largest = std::max(largest, std::abs(x));
          // Half a step of the dtype; int8's step is that of an f16 scale.
          const double tolerance = dtype == base::KvDtype::kF32   ? 0
                                   : dtype == base::KvDtype::kF16 ? largest * 0x1p-11
                                                                  : largest / 127 * 0.51;
          EXPECT_TRUE(Near(absl::MakeConstSpan(got).subspan(at, n), Wide(want), tolerance));
          for (size_t i = 0; i < got.size(); ++i) {
            const bool own = i >= at && i < at + n;
            ASSERT_EQ(std::isnan(got[i]), !own) << i;
          }
        }
      }
    }
  }
}

TEST_P(VectorKernelsTest, StoreKvAtTheEdgesOfItsDtype) {
  const KvLayout f16 = {base::KvDtype::kF16, 16, 1, 16};
  const KvLayout int8 = {base::KvDtype::kInt8, 16, 1, 16};
  std::vector<float> key(16, 0.0f), value(16, 1e6f);
  key[3] = std::numeric_limits<float>::quiet_NaN();
  for (const KvLayout& layout : {f16, int8}) {
    std::vector<std::byte> keys(1024), values(1024);
    kernels_.store_kv(layout, {keys.data(), values.data(), 0}, 0, key.data(), value.data());
    const std::vector<float> k = Decode(layout, keys.data(), true);
    const std::vector<float> v = Decode(layout, values.data(), false);
    EXPECT_TRUE(std::isnan(k[3]));
    EXPECT_NEAR(v[0], layout.scaled() ? 1e6f : 65504.0f, layout.scaled() ? 1e6 * 0.001 : 0);
  }
  const std::vector<float> zeros(16, 0.0f);
  std::vector<std::byte> keys(1024), values(1024);
  kernels_.store_kv(int8, {keys.data(), values.data(), 0}, 0, zeros.data(), zeros.data());
  for (const float x : Decode(int8, keys.data(), true)) EXPECT_EQ(x, 0);
}

INSTANTIATE_TEST_SUITE_P(AllIsas, VectorKernelsTest, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& isa) { return std::string(IsaName(isa.param)); });

}  // namespace
}  // namespace tokend::cpu
