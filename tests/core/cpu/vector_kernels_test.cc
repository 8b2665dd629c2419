#include "core/cpu/vector_kernels.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/cpu/cpu_features.h"
#include "core/cpu/rope_angles.h"
#include "core/ops/activation.h"
#include "core/ops/half.h"
#include "core/ops/rms_norm.h"
#include "core/ops/rope.h"
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

TEST_P(VectorKernelsTest, SwiGlu) {
  for (const size_t n : kSizes) {
    std::vector<float> gate = Normal(n, n, 4);
    const std::vector<float> up = Normal(n, n + 1);
    if (n > 4) {
      gate[0] = -200;
      gate[1] = 200;
      gate[2] = 0;
      gate[3] = -87.5f;
    }
    std::vector<double> want(n), tolerance(n);
    ops::GatedRef(ops::Activation::kSilu, Wide(gate), Wide(up), absl::MakeSpan(want));
    GuardedBuffer<float> got(n, 3);
    kernels_.swiglu(gate.data(), up.data(), static_cast<int64_t>(n), got.data());
    for (size_t i = 0; i < n; ++i) {
      // exp's argument is rounded (log2(e) too), then exp itself and four steps.
      const double exponent = std::min(90.0, std::abs(1.5 * gate[i]));
      tolerance[i] = std::abs(want[i]) * kEpsF32 * (2 * exponent + 8) + 1e-30;
    }
    EXPECT_TRUE(Near(got.view(), want, tolerance)) << n;
    EXPECT_TRUE(got.Intact());
    GuardedBuffer<float> plain(n);
    plain_.swiglu(gate.data(), up.data(), static_cast<int64_t>(n), plain.data());
    EXPECT_TRUE(SameBits(got.view(), plain.view())) << n;
  }
}

TEST_P(VectorKernelsTest, SwiGluKeepsNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float gate[2] = {nan, 1}, up[2] = {1, nan};
  float out[2];
  kernels_.swiglu(gate, up, 2, out);
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
}

TEST_P(VectorKernelsTest, Rotate) {
  struct Shape {
    int head_dim, dims;
  };
  for (const auto& [head_dim, dims] :
       {Shape{64, 64}, Shape{20, 20}, Shape{80, 32}, Shape{96, 72}, Shape{16, 2}, Shape{33, 0}}) {
    for (const auto pairing : {ops::RopePairing::kInterleaved, ops::RopePairing::kHalves}) {
      ops::Rope rope{pairing, dims, {}};
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
