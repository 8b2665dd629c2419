#include "core/cpu/activation_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/cpu/matmul_support.h"
#include "tests/support/compare.h"

namespace tokend::cpu {
namespace {

using base::Activations;

class ActivationBlocksTest : public ::testing::TestWithParam<Isa> {
 protected:
  ActivationBlocks Held(Activations mode, const std::vector<float>& x) {
    return Hold(mode, GetParam(), x, static_cast<int64_t>(x.size()));
  }
};

TEST_P(ActivationBlocksTest, StaysWithinHalfAStep) {
  for (const Activations mode : kAllModes) {
    const double levels = mode == Activations::kInt8 ? 127 : 16256;
    for (const int64_t cols : {1, 15, 31, 32, 33, 64, 100, 576}) {
      const std::vector<float> x = RandomInputs(cols, static_cast<uint64_t>(cols));
      const std::vector<double> held = HeldRow(Held(mode, x), 0);
      for (size_t k = 0; k < x.size(); ++k) {
        double largest = 0;
        for (size_t i = k / 32 * 32; i < std::min(x.size(), k / 32 * 32 + 32); ++i) {
          largest = std::max(largest, std::abs(static_cast<double>(x[i])));
        }
        // Half a step; d and its inverse are rounded.
        const double bound =
            mode == Activations::kF32 ? 0 : largest / levels / 2 + 4 * testing::kEpsF32 * largest;
        EXPECT_NEAR(held[k], x[k], bound) << ModeName(mode) << " " << cols << " " << k;
      }
    }
  }
}

template <class Block>
void CheckSums(const Block& block, const int32_t* values, int32_t factor) {
  int32_t halves[2] = {0, 0};
  for (int i = 0; i < 32; ++i) halves[i / 16] += values[i];
  const int32_t sum = halves[0] + halves[1];
  EXPECT_EQ(block.start8, -8 * sum);
  EXPECT_EQ(block.start128, factor * sum);
  EXPECT_EQ(block.start128_half[0], factor * halves[0]);
  EXPECT_EQ(block.start128_half[1], factor * halves[1]);
  EXPECT_EQ(block.d_sum, block.d * static_cast<float>(sum));
}

TEST_P(ActivationBlocksTest, CodesAndSums) {
  const std::vector<float> x = RandomInputs(320, 3);
  const ActivationBlocks held8 = Held(Activations::kInt8, x);
  const ActivationBlocks held16 = Held(Activations::kInt16, x);
  for (int64_t b = 0; b < 10; ++b) {
    const auto& block8 = reinterpret_cast<const ActivationBlock8*>(held8.row(0))[b];
    const auto& block16 = reinterpret_cast<const ActivationBlock16*>(held16.row(0))[b];
    int32_t values[32];
    for (int i = 0; i < 32; ++i) {
      values[i] = block8.q[i];
      EXPECT_GE(block8.q[i], -127);
    }
    CheckSums(block8, values, -128);
    int32_t largest = 0;
    for (int i = 0; i < 32; ++i) {
      values[i] = 128 * block16.high[i] + block16.low[i];
      EXPECT_TRUE(-64 <= block16.low[i] && block16.low[i] <= 63);
      largest = std::max(largest, std::abs(values[i]));
    }
    EXPECT_EQ(largest, 16256);
    CheckSums(block16, values, -1);
  }
}

TEST_P(ActivationBlocksTest, TiesGoToEven) {
  // The largest value makes the step exactly 1.
  const std::vector<float> x = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
  const auto held = Held(Activations::kInt8, x);
  const auto* block = reinterpret_cast<const ActivationBlock8*>(held.row(0));
  const int8_t want[] = {127, 0, 2, 2, 0, -2, -2, 126};
  EXPECT_EQ(block->d, 1.0f);
  EXPECT_EQ(std::memcmp(block->q, want, sizeof(want)), 0);
}

TEST_P(ActivationBlocksTest, ZeroTinyAndHugeBlocks) {
  for (const Activations mode : {Activations::kInt16, Activations::kInt8}) {
    for (const float value : {0.0f, -0.0f, 1e-40f, 0x1p-101f}) {
      const auto held = Held(mode, std::vector<float>(32, value));
      for (const double got : HeldRow(held, 0)) EXPECT_EQ(got, 0);
    }
    for (const float value : {0x1p-100f, 1e-20f, 3e38f, -3.4e38f}) {
      const auto held = Held(mode, std::vector<float>(32, value));
      for (const double got : HeldRow(held, 0)) {
        EXPECT_NEAR(got / value, 1, 2 * testing::kEpsF32);
      }
    }
    for (const float value : {std::nanf(""), -std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> x(64, 1.0f);
      x[33] = value;
      const auto held = Held(mode, x);
      for (size_t k = 0; k < 32; ++k) EXPECT_NEAR(HeldRow(held, 0)[k], 1, 1e-6);
      for (size_t k = 32; k < 64; ++k) EXPECT_TRUE(std::isnan(HeldRow(held, 0)[k]));
    }
  }
}

TEST_P(ActivationBlocksTest, SameBytesAsPlain) {
  for (const Activations mode : kAllModes) {
    const std::vector<float> x = RandomInputs(1000, 4);
    const auto held = Held(mode, x);
    const auto plain = Hold(mode, Isa::kPlain, x, 1000);
    EXPECT_EQ(std::memcmp(held.row(0), plain.row(0), static_cast<size_t>(held.row_bytes())), 0);
  }
}

TEST_P(ActivationBlocksTest, CopyRows) {
  const std::vector<float> x = RandomInputs(5 * 70, 5);
  for (const Activations mode : kAllModes) {
    const auto from = Hold(mode, GetParam(), x, 70);
    auto to = Hold(mode, GetParam(), std::vector<float>(5 * 70, 0.0f), 70);
    to.CopyRows(from, 1, 4);
    for (int64_t r = 0; r < 5; ++r) {
      const bool copied = 1 <= r && r < 4;
      EXPECT_EQ(HeldRow(to, r) == HeldRow(from, r), copied) << r;
    }
    to.CopyRows(from, 2, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ActivationBlocksTest, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& param_info) { return NameOfIsa(param_info.param); });

}  // namespace
}  // namespace tokend::cpu
