#include "core/ops/half.h"

#include <cmath>
#include <cstdint>
#include <random>

#include "gtest/gtest.h"

namespace tokend::ops {
namespace {

// The value that the IEEE 754 format defines, by arithmetic.
double F16Value(uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const int fraction = half & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

bool IsFinite(uint16_t half) { return (half & 0x7c00) != 0x7c00; }

TEST(HalfTest, WidensEveryValueExactlyAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = F16ToF32(half);
    if (IsFinite(half)) {
      ASSERT_EQ(wide, F16Value(half)) << bits;
      ASSERT_EQ(std::signbit(wide), (half & 0x8000) != 0) << bits;
      ASSERT_EQ(F32ToF16(wide), half);
    } else if (half & 0x3ff) {
      ASSERT_TRUE(std::isnan(wide) && std::isnan(F16ToF32(F32ToF16(wide)))) << bits;
    } else {
      ASSERT_TRUE(std::isinf(wide)) << bits;
      ASSERT_EQ(F32ToF16(wide), half);
    }
  }
}

// Between two neighbours: below, at and above the middle.
TEST(HalfTest, RoundsToNearestEven) {
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const auto middle = static_cast<float>((F16Value(low) + F16Value(high)) / 2);
    ASSERT_EQ(F32ToF16(middle), low % 2 == 0 ? low : high) << low;
    ASSERT_EQ(F32ToF16(std::nextafter(middle, 0.0f)), low) << low;
    ASSERT_EQ(F32ToF16(std::nextafter(middle, 1e9f)), high) << low;
    ASSERT_EQ(F32ToF16(-middle), F32ToF16(middle) | 0x8000) << low;
  }
  EXPECT_EQ(F32ToF16(65519.996f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(1e30f), 0x7c00);
  EXPECT_EQ(F32ToF16(-1e-30f), 0x8000);
}

TEST(HalfTest, Bfloat16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = Bf16ToF32(half);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(wide))));
    } else {
      ASSERT_EQ(F32ToBf16(wide), half);
    }
  }
  EXPECT_EQ(F32ToBf16(FloatFromBits(0x3f808000)), 0x3f80);  // a tie goes to even
  EXPECT_EQ(F32ToBf16(FloatFromBits(0x3f818000)), 0x3f82);
  EXPECT_EQ(F32ToBf16(FloatFromBits(0x3f808001)), 0x3f81);
}

}  // namespace
}  // namespace tokend::ops
