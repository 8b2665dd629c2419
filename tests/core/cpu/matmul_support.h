// Matrices and inputs for the tests of the CPU matmul.
#ifndef TOKEND_TESTS_CORE_CPU_MATMUL_SUPPORT_H_
#define TOKEND_TESTS_CORE_CPU_MATMUL_SUPPORT_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/dtype.h"
#include "core/cpu/activation_blocks.h"
#include "core/cpu/huge_pages.h"
#include "core/cpu/packed_matrix.h"
#include "core/ops/dequantize.h"
#include "core/ops/plan.h"
#include "tests/support/random_weights.h"

namespace tokend::cpu {

inline constexpr base::WeightType kAllTypes[] = {
    base::WeightType::kF32,  base::WeightType::kF16,  base::WeightType::kBF16,
    base::WeightType::kQ4_0, base::WeightType::kQ4_1, base::WeightType::kQ5_0,
    base::WeightType::kQ5_1, base::WeightType::kQ8_0, base::WeightType::kQ4_K,
    base::WeightType::kQ5_K, base::WeightType::kQ6_K};

inline constexpr base::Activations kAllModes[] = {
    base::Activations::kF32, base::Activations::kInt16, base::Activations::kInt8};

inline std::string TypeName(base::WeightType type) {
  return std::string(base::GetWeightType(type).name);
}
inline std::string ModeName(base::Activations mode) {
  return std::string(base::ActivationsName(mode));
}
inline std::string NameOfIsa(Isa isa) { return std::string(IsaName(isa)); }

// A packed matrix with everything that it is made of.
class TestMatrix {
 public:
  TestMatrix(base::WeightType type, int64_t rows, int64_t cols, std::string bytes)
      : bytes_(std::move(bytes)),
        source_{type, rows, cols, reinterpret_cast<const std::byte*>(bytes_.data())} {
    const int64_t packed_bytes = PackedMatrix::PackedBytes(source_);
    absl::StatusOr<WeightArena> arena = WeightArena::Create(WeightArena::Rounded(packed_bytes));
    TOKEND_CHECK(arena.ok());
    arena_ = *std::move(arena);
    packed_ = PackedMatrix(source_, arena_.Take(packed_bytes));
    packed_.PackPanels(source_, 0, packed_.panels());
  }
  TestMatrix(const TestMatrix&) = delete;
  TestMatrix& operator=(const TestMatrix&) = delete;

  const PackedMatrix& packed() const { return packed_; }
  const ops::Matrix& source() const { return source_; }
  int64_t rows() const { return source_.rows; }
  int64_t cols() const { return source_.cols; }

  // Row `o`, de-quantised.
  std::vector<float> Row(int64_t o) const {
    std::vector<float> row(static_cast<size_t>(cols()));
    ops::DequantizeRowRef(source_.type, source_.data + o * ops::RowBytes(source_),
                          absl::MakeSpan(row));
    return row;
  }

 private:
  std::string bytes_;
  ops::Matrix source_;
  WeightArena arena_;
  PackedMatrix packed_;
};

inline std::unique_ptr<TestMatrix> RandomMatrix(base::WeightType type, int64_t rows, int64_t cols,
                                                uint64_t seed) {
  std::mt19937_64 random(seed);
  return std::make_unique<TestMatrix>(
      type, rows, cols,
      testing::RandomWeights(type, static_cast<uint64_t>(rows * cols), 0.05f, random));
}

// Values with a spread of magnitudes as activations have, outliers included.
inline std::vector<float> RandomInputs(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = uniform(random) * uniform(random);
    if (random() % 50 == 0) value *= 40;
  }
  return values;
}

// x [rows, cols] in the form of `mode`.
inline ActivationBlocks Hold(base::Activations mode, Isa isa, const std::vector<float>& x,
                             int64_t cols) {
  const int64_t rows = static_cast<int64_t>(x.size()) / cols;
  absl::StatusOr<ActivationBlocks> blocks = ActivationBlocks::Create(mode, rows, cols, isa);
  TOKEND_CHECK(blocks.ok());
  for (int64_t r = 0; r < rows; ++r) blocks->SetRow(r, x.data() + r * cols);
  return *std::move(blocks);
}

// What the held values of a row stand for, exactly.
inline std::vector<double> HeldRow(const ActivationBlocks& blocks, int64_t row) {
  std::vector<double> values(static_cast<size_t>(blocks.cols()));
  for (size_t k = 0; k < values.size(); ++k) {
    switch (blocks.mode()) {
      case base::Activations::kF16:  // not on a CPU
        break;
      case base::Activations::kF32:
        values[k] = reinterpret_cast<const float*>(blocks.row(row))[k];
        break;
      case base::Activations::kInt16: {
        const auto& block = reinterpret_cast<const ActivationBlock16*>(blocks.row(row))[k / 32];
        values[k] = static_cast<double>(block.d) * (128 * block.high[k % 32] + block.low[k % 32]);
        break;
      }
      case base::Activations::kInt8: {
        const auto& block = reinterpret_cast<const ActivationBlock8*>(blocks.row(row))[k / 32];
        values[k] = static_cast<double>(block.d) * block.q[k % 32];
        break;
      }
    }
  }
  return values;
}

}  // namespace tokend::cpu

#endif  // TOKEND_TESTS_CORE_CPU_MATMUL_SUPPORT_H_
