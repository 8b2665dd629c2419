#include "core/cpu/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/cpu/matmul_support.h"
#include "tests/support/compare.h"
#include "tests/support/guarded_buffer.h"

namespace tokend::cpu {
namespace {

using base::Activations;
using base::WeightType;
using testing::GuardedBuffer;
using testing::kEpsF32;
using testing::Near;
using testing::SameBits;

struct Shape {
  int64_t outputs, inputs;
};

// Panel +- 1 and a bit more; one block, chunks of 24 blocks +- 1, vector width +- 1.
std::vector<Shape> Shapes(WeightType type) {
  switch (base::GetWeightType(type).block_elements) {
    case 1:
      return {{1, 1}, {5, 15}, {31, 16}, {32, 17}, {33, 31}, {64, 33}, {70, 100}, {3, 1030}};
    case 32:
      return {{1, 32}, {31, 64}, {32, 96}, {33, 576}, {70, 736}, {2, 768}, {3, 800}};
    default:
      return {{1, 256}, {31, 512}, {33, 768}, {70, 1024}};
  }
}

std::vector<float> Multiply(Isa isa, const TestMatrix& w, const ActivationBlocks& x,
                            const MatmulEpilogue& epilogue = {}) {
  std::vector<float> y(static_cast<size_t>(x.max_rows() * w.rows()), -1.0f);
  MatmulPanels(isa, w.packed(), x, 0, x.max_rows(), 0, w.packed().panels(), y.data(), w.rows(),
               epilogue);
  return y;
}

// y = W x in double on the held inputs, and how far an f32 result may be from it.
struct Reference {
  std::vector<double> y, tolerance;
  std::vector<double> quantisation;  // further than that it cannot be from W times the inputs
};

// Rounding, by matmul.h's list of operations: the terms of a block go through the
// product of scales, a conversion and the additions behind them. With minima the
// terms s c and m are larger than the weights s c + m; here |m| and |s c| stay
// below three times the block's largest weight, since m is near -7.5 or -15.5 s.
// The reference's own weights are rounded once.
Reference MakeReference(const TestMatrix& w, const ActivationBlocks& x) {
  const int64_t cols = w.cols();
  const int64_t blocks = (cols + 31) / 32;
  const auto size = static_cast<size_t>(x.max_rows() * w.rows());
  Reference result{std::vector<double>(size), std::vector<double>(size), std::vector<double>(size)};
  const double operations =
      x.mode() == Activations::kF32 ? 32 + static_cast<double>(blocks) : 4.0 * blocks + 6;
  for (int64_t o = 0; o < w.rows(); ++o) {
    const std::vector<float> row = w.Row(o);
    for (int64_t r = 0; r < x.max_rows(); ++r) {
      const std::vector<double> held = HeldRow(x, r);
      const auto at = static_cast<size_t>(r * w.rows() + o);
      double magnitude = 0;
      for (int64_t b = 0; b < cols; b += 32) {
        double largest = 0, inputs = 0, weights = 0;
        for (auto k = static_cast<size_t>(b); k < held.size() && k < static_cast<size_t>(b) + 32;
             ++k) {
          result.y[at] += row[k] * held[k];
          largest = std::max(largest, std::abs(static_cast<double>(row[k])));
          inputs += std::abs(held[k]);
          weights += std::abs(static_cast<double>(row[k]));
        }
        magnitude += 3 * largest * inputs;
        if (x.mode() == Activations::kF32) continue;
        const float d = x.mode() == Activations::kInt16
                            ? reinterpret_cast<const ActivationBlock16*>(x.row(r))[b / 32].d
                            : reinterpret_cast<const ActivationBlock8*>(x.row(r))[b / 32].d;
        // Half a step, and d and 1 / d are rounded: 16256 steps feel 2 eps each.
        result.quantisation[at] += weights * d * (0.5 + 16256 * 4 * kEpsF32);
      }
      result.tolerance[at] = operations * kEpsF32 * magnitude + 1e-30;
    }
  }
  return result;
}

class MatmulTest : public ::testing::TestWithParam<std::tuple<Isa, WeightType, Activations>> {
 protected:
  Isa isa() const { return std::get<0>(GetParam()); }
  WeightType type() const { return std::get<1>(GetParam()); }
  Activations mode() const { return std::get<2>(GetParam()); }
};

TEST_P(MatmulTest, MatchesReference) {
  uint64_t seed = 1;
  for (const Shape& shape : Shapes(type())) {
    SCOPED_TRACE(::testing::Message() << shape.outputs << " x " << shape.inputs);
    const std::unique_ptr<TestMatrix> w = RandomMatrix(type(), shape.outputs, shape.inputs, ++seed);
    // Enough rows to be unpacked, and a remainder of every tile.
    const std::vector<float> inputs = RandomInputs(17 * shape.inputs, ++seed);
    const ActivationBlocks x = Hold(mode(), isa(), inputs, shape.inputs);
    const Reference reference = MakeReference(*w, x);
    const std::vector<float> y = Multiply(isa(), *w, x);
    EXPECT_TRUE(Near(y, reference.y, reference.tolerance));

    if (mode() == Activations::kF32) continue;
    const Reference exact = MakeReference(*w, Hold(Activations::kF32, isa(), inputs, shape.inputs));
    std::vector<double> bound(y.size());
    for (size_t i = 0; i < y.size(); ++i) {
      bound[i] = reference.quantisation[i] + reference.tolerance[i];
    }
    EXPECT_TRUE(Near(y, exact.y, bound)) << "quantisation of the inputs";
  }
}

TEST_P(MatmulTest, SameBitsAsPlain) {
  uint64_t seed = 100;
  for (const Shape& shape : Shapes(type())) {
    SCOPED_TRACE(::testing::Message() << shape.outputs << " x " << shape.inputs);
    const std::unique_ptr<TestMatrix> w = RandomMatrix(type(), shape.outputs, shape.inputs, ++seed);
    const std::vector<float> inputs = RandomInputs(14 * shape.inputs, ++seed);
    const std::vector<float> plain =
        Multiply(Isa::kPlain, *w, Hold(mode(), Isa::kPlain, inputs, shape.inputs));
    EXPECT_TRUE(SameBits(Multiply(isa(), *w, Hold(mode(), isa(), inputs, shape.inputs)), plain));
  }
}

// A row's bits do not depend on the rows beside it.
TEST_P(MatmulTest, RowsAreIndependent) {
  struct Case {
    int64_t inputs;
    std::vector<int64_t> row_counts;
  };
  // More than one chunk of inputs; more than one block of rows.
  const Case cases[] = {{1024, {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 64}}, {256, {95, 97, 512}}};
  for (const auto& [inputs, row_counts] : cases) {
    const int64_t outputs = 40, most = row_counts.back();
    const std::unique_ptr<TestMatrix> w = RandomMatrix(type(), outputs, inputs, 5);
    const ActivationBlocks x = Hold(mode(), isa(), RandomInputs(most * inputs, 6), inputs);
    std::vector<float> alone(static_cast<size_t>(most * outputs));
    for (int64_t r = 0; r < most; ++r) {
      MatmulPanels(isa(), w->packed(), x, r, r + 1, 0, 2, alone.data(), outputs);
    }
    for (const int64_t rows : row_counts) {
      std::vector<float> together(static_cast<size_t>(rows * outputs));
      MatmulPanels(isa(), w->packed(), x, 0, rows, 0, 2, together.data(), outputs);
      EXPECT_EQ(std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0)
          << rows << " rows";
    }
  }
}

TEST_P(MatmulTest, WritesItsRowsAndPanelsOnly) {
  const int64_t cols = 512, outputs = 77, stride = 83;
  const std::unique_ptr<TestMatrix> w = RandomMatrix(type(), outputs, cols, 7);
  const ActivationBlocks x = Hold(mode(), isa(), RandomInputs(20 * cols, 8), cols);
  const std::vector<float> whole = Multiply(isa(), *w, x);
  for (const auto& [begin, end, first, last] :
       {std::array<int64_t, 4>{3, 19, 1, 2}, {0, 1, 2, 3}, {5, 8, 0, 3}, {4, 4, 0, 3}}) {
    GuardedBuffer<float> y(20 * stride, 1);
    MatmulPanels(isa(), w->packed(), x, begin, end, first, last, y.data(), stride);
    EXPECT_TRUE(y.Intact());
    for (int64_t r = 0; r < 20; ++r) {
      for (int64_t o = 0; o < stride; ++o) {
        const float got = y[static_cast<size_t>(r * stride + o)];
        const bool written =
            begin <= r && r < end && first * 32 <= o && o < std::min(last * 32, outputs);
        if (written) {
          EXPECT_EQ(got, whole[static_cast<size_t>(r * outputs + o)]) << r << ", " << o;
        } else {
          EXPECT_TRUE(std::isnan(got)) << r << ", " << o;
        }
      }
    }
  }
}

TEST_P(MatmulTest, Epilogue) {
  const int64_t cols = 256, outputs = 45;
  const std::unique_ptr<TestMatrix> w = RandomMatrix(type(), outputs, cols, 9);
  const ActivationBlocks x = Hold(mode(), isa(), RandomInputs(3 * cols, 10), cols);
  const std::vector<float> bias = RandomInputs(outputs, 11);
  const std::vector<float> y = Multiply(isa(), *w, x);
  const std::vector<float> biased = Multiply(isa(), *w, x, {bias.data(), false});
  const std::vector<float> added = Multiply(isa(), *w, x, {nullptr, true});
  const std::vector<float> both = Multiply(isa(), *w, x, {bias.data(), true});
  for (size_t i = 0; i < y.size(); ++i) {
    const float with_bias = y[i] + bias[i % outputs];
    EXPECT_EQ(biased[i], with_bias);
    EXPECT_EQ(added[i], -1.0f + y[i]);
    EXPECT_EQ(both[i], -1.0f + with_bias);
  }
}

TEST_P(MatmulTest, NotANumberStays) {
  const int64_t cols = 256;
  const std::unique_ptr<TestMatrix> w = RandomMatrix(type(), 8, cols, 12);
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    std::vector<float> inputs = RandomInputs(2 * cols, 13);
    inputs[static_cast<size_t>(cols) + 100] = bad;
    const std::vector<float> y = Multiply(isa(), *w, Hold(mode(), isa(), inputs, cols));
    for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(std::isfinite(y[i]));
    for (size_t i = 8; i < 16; ++i) EXPECT_FALSE(std::isfinite(y[i]));
  }
}

std::vector<std::tuple<Isa, WeightType, Activations>> AllCases() {
  std::vector<std::tuple<Isa, WeightType, Activations>> cases;
  for (const Isa isa : SupportedIsas()) {
    for (const WeightType type : kAllTypes) {
      for (const Activations mode : kAllModes) {
        const bool is_float = base::GetWeightType(type).block_elements == 1;
        if (!is_float || mode == Activations::kF32) cases.emplace_back(isa, type, mode);
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, MatmulTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& param_info) {
                           return NameOfIsa(std::get<0>(param_info.param)) + "_" +
                                  TypeName(std::get<1>(param_info.param)) + "_" +
                                  ModeName(std::get<2>(param_info.param));
                         });

// Extreme codes and inputs: integer sums must not saturate or overflow anywhere.
class MatmulExtremesTest : public ::testing::TestWithParam<std::tuple<Isa, WeightType>> {};

TEST_P(MatmulExtremesTest, SumsStayExact) {
  const auto [isa, type] = GetParam();
  const base::WeightTypeInfo& info = base::GetWeightType(type);
  const int64_t cols = 256, outputs = 32;
  for (const int fill : {0x00, 0xff, 0x80, 0x7f}) {
    std::string bytes(static_cast<size_t>(outputs * cols / info.block_elements * info.block_bytes),
                      static_cast<char>(fill));
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(info.block_bytes)) {
      const size_t scale_at = type == WeightType::kQ6_K ? 208 : 0;
      const uint16_t one = 0x3c00, zero = 0;
      std::memcpy(&bytes[at + scale_at], &one, 2);
      if (type == WeightType::kQ4_1 || type == WeightType::kQ5_1 || type == WeightType::kQ4_K ||
          type == WeightType::kQ5_K) {
        std::memcpy(&bytes[at + 2], &zero, 2);
      }
    }
    const TestMatrix w(type, outputs, cols, std::move(bytes));
    for (const float sign : {1.0f, -1.0f}) {
      for (const Activations mode : {Activations::kInt16, Activations::kInt8}) {
        const int64_t rows = 20;  // both sides of every unpacking threshold
        const ActivationBlocks x =
            Hold(mode, isa, std::vector<float>(static_cast<size_t>(rows * cols), sign), cols);
        const double held = HeldRow(x, 0)[0];
        const std::vector<float> y = Multiply(isa, w, x);
        for (int64_t o = 0; o < outputs; ++o) {
          double want = 0;
          for (const float weight : w.Row(o)) want += weight * held;
          EXPECT_NEAR(y[static_cast<size_t>(o)], want, 40 * kEpsF32 * std::abs(want))
              << "codes " << fill << " " << ModeName(mode);
          EXPECT_EQ(y[static_cast<size_t>(o)], y[static_cast<size_t>(19 * outputs + o)]);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MatmulExtremesTest,
    ::testing::Combine(::testing::ValuesIn(SupportedIsas()),
                       ::testing::Values(WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0,
                                         WeightType::kQ5_1, WeightType::kQ8_0, WeightType::kQ4_K,
                                         WeightType::kQ5_K, WeightType::kQ6_K)),
    [](const auto& param_info) {
      return NameOfIsa(std::get<0>(param_info.param)) + "_" +
             TypeName(std::get<1>(param_info.param));
    });

// x86-64 and AArch64 builds must agree as well: a hash of the bits of all types
// and modes, the same in this file for every processor.
TEST(MatmulBitsTest, SameOnEveryProcessor) {
  for (const Isa isa : SupportedIsas()) {
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (const WeightType type : kAllTypes) {
      const std::unique_ptr<TestMatrix> w = RandomMatrix(type, 33, 512, 21);
      for (const Activations mode : kAllModes) {
        if (w->packed().ActivationsFor(mode) != mode) continue;
        const std::vector<float> y =
            Multiply(isa, *w, Hold(mode, isa, RandomInputs(3 * 512, 22), 512));
        for (const float value : y) {
          uint32_t bits;
          std::memcpy(&bits, &value, sizeof(bits));
          for (int i = 0; i < 32; i += 8) hash = (hash ^ (bits >> i & 255)) * 1099511628211u;
        }
      }
    }
    EXPECT_EQ(hash, 95264304856568477u) << NameOfIsa(isa);
  }
}

}  // namespace
}  // namespace tokend::cpu
