#include "tests/support/compare.h"

#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/guarded_buffer.h"

namespace tokend::testing {
namespace {

constexpr double kTolerance = 1e-6;

class NearTest : public ::testing::Test {
 protected:
  NearTest() : want_(1'000'000) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    for (double& value : want_) value = normal(random);
    want_[kAt] = 0.5;
    got_.assign(want_.begin(), want_.end());
  }

  static constexpr size_t kAt = 765'432;
  std::vector<double> want_;
  std::vector<float> got_;
};

TEST_F(NearTest, PassesWithinTolerance) { EXPECT_TRUE(Near(got_, want_, kTolerance)); }

TEST_F(NearTest, FailsOnOneWrongElementInAMillion) {
  got_[kAt] += 3e-6f;
  EXPECT_FALSE(Near(got_, want_, kTolerance));
}

TEST_F(NearTest, FailsOnASignFlip) {
  got_[kAt] = -got_[kAt];
  EXPECT_FALSE(Near(got_, want_, kTolerance));
}

TEST_F(NearTest, FailsOnNaNAndInfEvenIfTheReferenceHasThem) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> got = got_;
    got[kAt] = bad;
    EXPECT_FALSE(Near(got, want_, kTolerance));
    EXPECT_FALSE(Near(got, want_, 1e30));
    std::vector<double> want = want_;
    want[kAt] = bad;
    EXPECT_FALSE(Near(got, want, kTolerance));
    EXPECT_FALSE(Near(got_, want, kTolerance));
    EXPECT_FALSE(Near(got_, want_, bad));
  }
}

TEST_F(NearTest, FailsOnOtherSizesAndOnNothing) {
  EXPECT_FALSE(Near(absl::MakeConstSpan(got_).subspan(1), want_, kTolerance));
  EXPECT_FALSE(Near({}, {}, kTolerance));
  EXPECT_FALSE(Near(got_, want_, std::vector<double>(3, 1.0)));
}

TEST(SameBitsTest, TellsZerosApartAndRejectsNaN) {
  const std::vector<float> a = {1.0f, 0.0f};
  const std::vector<float> b = {1.0f, -0.0f};
  const std::vector<float> nan = {1.0f, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(SameBits(a, a));
  EXPECT_FALSE(SameBits(a, b));
  EXPECT_FALSE(SameBits(nan, nan));
  EXPECT_FALSE(SameBits({}, {}));
}

TEST(DotToleranceTest, BoundsAFloatSumTightly) {
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> x(4096), w(4096);
  for (float& value : x) value = normal(random);
  for (float& value : w) value = normal(random);
  float sum = 0;
  double exact = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += x[i] * w[i];
    exact += static_cast<double>(x[i]) * w[i];
  }
  const double tolerance = DotTolerance(kEpsF32, x.size(), Norm2<float>(x), Norm2<float>(w));
  EXPECT_LE(std::abs(sum - exact), tolerance);
  EXPECT_LT(tolerance, 2.0);  // of a result whose standard deviation is 64
}

TEST(GuardedBufferTest, SeesAWriteOnEitherSide) {
  for (const size_t offset : {0, 1, 3}) {
    GuardedBuffer<float> buffer(10, offset);
    EXPECT_TRUE(std::isnan(buffer[0]) && std::isnan(buffer[9]));
    for (float& value : buffer.span()) value = 1;
    EXPECT_TRUE(buffer.Intact());
    buffer.data()[-1] = 0;
    EXPECT_FALSE(buffer.Intact());
  }
  GuardedBuffer<float> buffer(10);
  buffer.data()[10] = 0;
  EXPECT_FALSE(buffer.Intact());
}

TEST(CompareTest, RootMeanSquareErrorSeesEveryElement) {
  EXPECT_DOUBLE_EQ(RootMeanSquareError({1, 2, 3, 4}, {1, 2, 3, 4}), 0);
  EXPECT_DOUBLE_EQ(RootMeanSquareError({1, 2, 3, 6}, {1, 2, 3, 4}), 1);
  EXPECT_EQ(RootMeanSquareError({1, NAN}, {1, 2}), INFINITY);
  EXPECT_EQ(RootMeanSquareError({1}, {1, 2}), INFINITY);
}

}  // namespace
}  // namespace tokend::testing
