// The references themselves: against worked values and against properties that
// the formulas have.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/ops/activation.h"
#include "core/ops/attention.h"
#include "core/ops/dequantize.h"
#include "core/ops/layer_norm.h"
#include "core/ops/linear.h"
#include "core/ops/rms_norm.h"
#include "core/ops/rope.h"
#include "core/ops/soft_cap.h"
#include "core/ops/softmax.h"
#include "gtest/gtest.h"

namespace tokend::ops {
namespace {

std::vector<double> Normal(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(size);
  for (double& value : values) value = normal(random);
  return values;
}

void ExpectNear(absl::Span<const double> got, absl::Span<const double> want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << i;
}

TEST(RmsNormRefTest, WorkedValues) {
  const std::vector<float> weight = {1, 2};
  std::vector<double> x = {3, 4};
  RmsNormRef(x, weight, 0.0, absl::MakeSpan(x));  // sqrt(25 / 2) = 3.5355...
  ExpectNear(x, {0.84852813742385702, 2.2627416997969521}, 1e-15);
  x = {0, 0};
  RmsNormRef(x, weight, 1e-6, absl::MakeSpan(x));
  ExpectNear(x, {0, 0}, 0);
}

TEST(LayerNormRefTest, WorkedValues) {
  const std::vector<float> weight = {1, 2, 1}, bias = {0, 0, 10};
  std::vector<double> x = {101, 102, 106};  // mean 103, variance 14 / 3
  LayerNormRef(x, weight, bias, 0.0, absl::MakeSpan(x));
  const double scale = std::sqrt(3.0 / 14);
  ExpectNear(x, {-2 * scale, -2 * scale, 10 + 3 * scale}, 1e-14);
  x = {5, 5, 5};
  LayerNormRef(x, weight, {}, 1e-6, absl::MakeSpan(x));
  ExpectNear(x, {0, 0, 0}, 0);
}

TEST(SoftCapTest, WorkedValues) {
  EXPECT_EQ(SoftCap(0, 1e9), 1e9);
  EXPECT_NEAR(SoftCap(30, 15), 30 * 0.46211715726000975, 1e-13);
  EXPECT_NEAR(SoftCap(30, 1e-3), 1e-3, 1e-12);
  EXPECT_EQ(SoftCap(30, -1e6), -30);
}

TEST(SoftmaxRefTest, WorkedValuesAndShift) {
  std::vector<double> values = {0, std::log(3.0)};
  SoftmaxRef(absl::MakeSpan(values));
  ExpectNear(values, {0.25, 0.75}, 1e-15);
  values = {1000, 1000 + std::log(3.0)};
  SoftmaxRef(absl::MakeSpan(values));
  ExpectNear(values, {0.25, 0.75}, 1e-12);
}

TEST(GatedRefTest, WorkedValues) {
  std::vector<double> out(3);
  GatedRef(Activation::kSilu, {0.0, std::log(3.0), -std::log(3.0)}, {5.0, 2.0, 2.0},
           absl::MakeSpan(out));
  ExpectNear(out, {0, 1.5 * std::log(3.0), -0.5 * std::log(3.0)}, 1e-15);
  GatedRef(Activation::kSilu, {-1000.0, 1000.0}, {1.0, 1.0}, absl::MakeSpan(out).subspan(1));
  ExpectNear(absl::MakeConstSpan(out).subspan(1), {0, 1000}, 0);
}

// From tables of the normal distribution, and of tanh.
TEST(ActivateRefTest, WorkedValues) {
  std::vector<double> out(4);
  ActivateRef(Activation::kGelu, {0.0, 1.0, -2.0, -40.0}, absl::MakeSpan(out));
  ExpectNear(out, {0, 0.8413447460685429, -0.04550026389635842, 0}, 1e-15);
  ActivateRef(Activation::kGeluTanh, {0.0, 1.0, -2.0, -40.0}, absl::MakeSpan(out));
  ExpectNear(out, {0, 0.8411919906082768, -0.04540230591222494, 0}, 1e-14);
  ActivateRef(Activation::kSilu, {0.0, 1.0, 1000.0, -1000.0}, absl::MakeSpan(out));
  ExpectNear(out, {0, 0.7310585786300049, 1000, 0}, 1e-15);
  GatedRef(Activation::kGelu, {1.0, -2.0}, {3.0, 2.0}, absl::MakeSpan(out).subspan(2));
  ExpectNear(absl::MakeConstSpan(out).subspan(2), {2.5240342382056287, -0.09100052779271684},
             1e-15);
}

TEST(RowRangeTest, IsThoseRows) {
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};  // [3, 2]
  const Matrix whole = {base::WeightType::kF32, 3, 2,
                        reinterpret_cast<const std::byte*>(weight.data())};
  const Matrix part = RowRange(whole, 1, 2);
  EXPECT_EQ(part.rows, 2);
  std::vector<double> y(2);
  LinearRef({part, nullptr}, {1.0, 1.0}, absl::MakeSpan(y));
  ExpectNear(y, {7, 11}, 0);
}

TEST(LinearRefTest, MultipliesEachRowAndAddsTheBias) {
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};  // [3, 2]
  const std::vector<float> bias = {0, 10, 20};
  const Linear linear = {
      {base::WeightType::kF32, 3, 2, reinterpret_cast<const std::byte*>(weight.data())},
      bias.data()};
  std::vector<double> y(6);
  LinearRef(linear, {1.0, 1.0, 2.0, -1.0}, absl::MakeSpan(y));
  ExpectNear(y, {3, 17, 31, 0, 12, 24}, 0);
  std::vector<double> row(2);
  EmbeddingRef(linear.weight, 2, absl::MakeSpan(row));
  ExpectNear(row, {5, 6}, 0);
}

Rope MakeRope(RopePairing pairing, int dims) {
  Rope rope{pairing, dims, {}};
  for (int i = 0; i < dims / 2; ++i) {
    rope.inverse_frequencies.push_back(std::pow(10000.0, -2.0 * i / dims));
  }
  return rope;
}

TEST(RopeRefTest, TurnsThePairsThatItsPairingNames) {
  const double t = 3 * 0.01;  // of the second pair of 4 dims at position 3
  std::vector<double> head = {0, 0, 1, 0, 7};
  RopeRef(MakeRope(RopePairing::kInterleaved, 4), 3, 5, absl::MakeSpan(head));
  ExpectNear(head, {0, 0, std::cos(t), std::sin(t), 7}, 1e-15);
  head = {0, 1, 0, 0, 7};
  RopeRef(MakeRope(RopePairing::kHalves, 4), 3, 5, absl::MakeSpan(head));
  ExpectNear(head, {0, std::cos(t), 0, std::sin(t), 7}, 1e-15);
}

TEST(RopeRefTest, MagnitudeScalesWhatIsRotated) {
  Rope rope = MakeRope(RopePairing::kHalves, 4);
  std::vector<double> want = {1, 2, 3, 4, 5}, got = want;
  RopeRef(rope, 3, 5, absl::MakeSpan(want));
  std::vector<float> cos(2), sin(2);
  rope.magnitude = 1.25;
  RopeRef(rope, 3, 5, absl::MakeSpan(got));
  RopeAngles(rope, 3, absl::MakeSpan(cos), absl::MakeSpan(sin));
  EXPECT_NEAR(cos[1], 1.25 * std::cos(0.03), 1e-6);
  EXPECT_NEAR(sin[1], 1.25 * std::sin(0.03), 1e-6);
  for (int i = 0; i < 4; ++i) want[i] *= 1.25;
  ExpectNear(got, want, 1e-15);
}

TEST(RopeRefTest, ScoresDependOnDistanceAlone) {
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalves}) {
    const Rope rope = MakeRope(pairing, 16);
    const std::vector<double> q = Normal(16, 1), k = Normal(16, 2);
    auto score = [&](int64_t at_q, int64_t at_k) {
      std::vector<double> a = q, b = k;
      RopeRef(rope, at_q, 16, absl::MakeSpan(a));
      RopeRef(rope, at_k, 16, absl::MakeSpan(b));
      double sum = 0;
      for (int i = 0; i < 16; ++i) sum += a[i] * b[i];
      return sum;
    };
    EXPECT_NEAR(score(12, 5), score(1'000'007, 1'000'000), 1e-8);
    EXPECT_GT(std::abs(score(12, 5) - score(12, 6)), 1e-3);
  }
}

TEST(RopeRefTest, AnglesRoundTheDoubleOnce) {
  const Rope rope = MakeRope(RopePairing::kHalves, 8);
  std::vector<float> cos(4), sin(4);
  const int64_t position = 123'456'789'012;
  RopeAngles(rope, position, absl::MakeSpan(cos), absl::MakeSpan(sin));
  for (int i = 0; i < 4; ++i) {
    const double angle = position * rope.inverse_frequencies[i];
    EXPECT_EQ(cos[i], static_cast<float>(std::cos(angle)));
    EXPECT_EQ(sin[i], static_cast<float>(std::sin(angle)));
  }
}

class AttentionRefTest : public ::testing::Test {
 protected:
  static constexpr int64_t kPositions = 40;
  const AttentionShape shape_ = {6, 2, 8, 0.35};
  const std::vector<double> keys_ = Normal(kPositions * 16, 3);
  const std::vector<double> values_ = Normal(kPositions * 16, 4);
  const std::vector<double> query_ = Normal(48, 5);
  const std::vector<double> sink_query_ = Normal(48, 6);

  std::vector<double> Attend(const AttentionMask& mask, int64_t position) {
    std::vector<double> out(48);
    AttentionRef(shape_, mask, position, query_, sink_query_, keys_, values_, absl::MakeSpan(out));
    return out;
  }
};

TEST_F(AttentionRefTest, OneKeyGivesItsValue) {
  const std::vector<double> out = Attend({}, 0);
  for (int head = 0; head < 6; ++head) {
    for (int i = 0; i < 8; ++i) EXPECT_EQ(out[head * 8 + i], values_[head / 3 * 8 + i]);
  }
}

TEST_F(AttentionRefTest, WindowOfOneGivesOwnValueAndHiddenRowsAreNotRead) {
  std::vector<double> values = values_, keys = keys_;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int64_t q = 0; q < 30; ++q) {
    for (int i = 0; i < 16; ++i) values[q * 16 + i] = keys[q * 16 + i] = nan;
  }
  std::vector<double> out(48);
  AttentionRef(shape_, {0, 1}, 30, query_, sink_query_, keys, values, absl::MakeSpan(out));
  EXPECT_EQ(out[0], values_[30 * 16]);
}

// By the definition, with plain loops: the sinks use the other query.
TEST_F(AttentionRefTest, SinksUseTheirOwnQuery) {
  const AttentionMask mask = {3, 5};
  const std::vector<double> got = Attend(mask, 20);
  const int head = 4;
  std::vector<double> want(8);
  double total = 0;
  for (const int q : {0, 1, 2, 16, 17, 18, 19, 20}) {
    double score = 0;
    for (int i = 0; i < 8; ++i) {
      score += (q < 3 ? sink_query_ : query_)[head * 8 + i] * keys_[q * 16 + 8 + i];
    }
    const double p = std::exp(shape_.scale * score);
    total += p;
    for (int i = 0; i < 8; ++i) want[i] += p * values_[q * 16 + 8 + i];
  }
  for (double& value : want) value /= total;
  ExpectNear(absl::MakeConstSpan(got).subspan(head * 8, 8), want, 1e-12);
}

TEST_F(AttentionRefTest, SoftCapBoundsTheScores) {
  AttentionShape capped = {1, 1, 1, 10.0, 2.0};
  std::vector<double> out(1);
  // Scores 20 tanh-capped to 2 and 0: weights e^2 and 1.
  AttentionRef(capped, {}, 1, {1.0}, {1.0}, {100.0, 0.0}, {1.0, 0.0}, absl::MakeSpan(out));
  ExpectNear(out, {std::exp(2.0) / (std::exp(2.0) + 1)}, 1e-12);
}

TEST_F(AttentionRefTest, PagesInAnyOrderGiveTheSame) {
  const int page_tokens = 4;
  const AttentionMask mask = {3, 9};
  const int64_t position = 38;
  // Sinks in page 7; positions 28 to 39 (logical pages 7 to 9) in 2, 9, 0.
  const std::vector<base::PageId> table = {base::PageId{7}, base::PageId{2}, base::PageId{9},
                                           base::PageId{0}};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> keys(10 * page_tokens * 16, nan), values(keys.size(), nan);
  auto fill = [&](int page, int64_t logical) {
    for (int64_t i = 0; i < page_tokens * 16; ++i) {
      keys[page * page_tokens * 16 + i] = keys_[logical * page_tokens * 16 + i];
      values[page * page_tokens * 16 + i] = values_[logical * page_tokens * 16 + i];
    }
  };
  fill(7, 0);
  fill(2, 7);
  fill(9, 8);
  fill(0, 9);
  const LayerKv layer = {table.data(), 1, 4, 7, mask};
  std::vector<double> got(48);
  PagedAttentionRef(shape_, layer, position, query_, sink_query_, {page_tokens, keys, values},
                    absl::MakeSpan(got));
  ExpectNear(got, Attend(mask, position), 0);
  EXPECT_EQ(FindPage(layer, 6), base::PageId::kNone);
  EXPECT_EQ(FindPage(layer, 10), base::PageId::kNone);
}

}  // namespace
}  // namespace tokend::ops
