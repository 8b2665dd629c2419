// Matrices, rows and expectations for the tests of the CUDA matmul.
#ifndef TOKEND_TESTS_CUDA_KERNELS_MATMUL_RIG_H_
#define TOKEND_TESTS_CUDA_KERNELS_MATMUL_RIG_H_

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/ops/dequantize.h"
#include "core/ops/half.h"
#include "core/ops/linear.h"
#include "cuda_kernels/backend/packed_weights.h"
#include "cuda_kernels/kernels/matmul.h"
#include "tests/cuda_kernels/device_array.h"
#include "tests/support/compare.h"
#include "tests/support/random_weights.h"

namespace tokend::cuda {

using base::WeightType;

inline constexpr WeightType kAllTypes[] = {WeightType::kF32,  WeightType::kF16,  WeightType::kBF16,
                                           WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0,
                                           WeightType::kQ5_1, WeightType::kQ8_0, WeightType::kQ4_K,
                                           WeightType::kQ5_K, WeightType::kQ6_K};

inline std::string TypeName(WeightType type) { return std::string(base::GetWeightType(type).name); }

inline std::vector<float> RandomFloats(size_t count, uint64_t seed, float scale = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) {
    value = scale * uniform(random) * uniform(random);
    if (random() % 50 == 0) value *= 40;  // activations have outliers
  }
  return values;
}

// A matrix in its file's form and packed on the device; gated: with a second one, up.
class TestMatrix {
 public:
  TestMatrix(WeightType type, int outputs, int cols, uint64_t seed, bool pair = false,
             bool gated = false)
      : bytes_(Random(type, outputs, cols, seed)),
        up_bytes_(gated ? Random(type, outputs, cols, seed + 1) : ""),
        source_{type, outputs, cols, reinterpret_cast<const std::byte*>(bytes_.data())},
        up_{type, outputs, cols, reinterpret_cast<const std::byte*>(up_bytes_.data())},
        packed_(static_cast<size_t>(PackedBytes(source_, pair, gated))) {
    std::vector<unsigned char> packed(packed_.size());
    auto* out = reinterpret_cast<std::byte*>(packed.data());
    const absl::Status status = gated ? PackGatedWeights(source_, up_, pair, "test", out)
                                      : PackWeights(source_, pair, "test", out);
    EXPECT_TRUE(status.ok()) << status;
    packed_.Upload(packed);
    view_ = PackedView(source_, pair, gated, packed_.data());
    pair_ = pair;
  }
  TestMatrix(const TestMatrix&) = delete;
  TestMatrix& operator=(const TestMatrix&) = delete;

  const PackedMatrix& view() const { return view_; }
  const ops::Matrix& source() const { return source_; }
  const ops::Matrix& up() const { return up_; }
  size_t outputs() const { return static_cast<size_t>(source_.rows); }
  size_t cols() const { return static_cast<size_t>(source_.cols); }

  // Row `o` as the device holds it: F32 and BF16 weights as f16, or as two.
  std::vector<double> Row(size_t o, bool up = false) const {
    const ops::Matrix& matrix = up ? up_ : source_;
    std::vector<float> row(cols());
    ops::DequantizeRowRef(matrix.type,
                          matrix.data + static_cast<int64_t>(o) * ops::RowBytes(matrix),
                          absl::MakeSpan(row));
    std::vector<double> held(row.begin(), row.end());
    if (matrix.type == WeightType::kF32 || matrix.type == WeightType::kBF16) {
      for (double& value : held) {
        const auto exact = static_cast<float>(value);
        const float hi = ops::F16ToF32(ops::F32ToF16(exact));
        value = hi;
        if (pair_) value += ops::F16ToF32(ops::F32ToF16(exact - hi));
      }
    }
    return held;
  }

 private:
  static std::string Random(WeightType type, int outputs, int cols, uint64_t seed) {
    std::mt19937_64 random(seed);
    return testing::RandomWeights(type, static_cast<uint64_t>(outputs) * cols, 0.05f, random);
  }

  std::string bytes_;
  std::string up_bytes_;
  ops::Matrix source_;
  ops::Matrix up_;
  DeviceArray<unsigned char> packed_;
  PackedMatrix view_;
  bool pair_;
};

// Rows of f16 or of pairs, on the device, and what they stand for.
class TestRows {
 public:
  TestRows(const std::vector<float>& values, size_t cols, bool pair)
      : cols_(cols),
        stride_((cols + 7) / 8 * 8 + 8),
        rows_(values.size() / cols),
        hi_(rows_ * stride_),
        lo_(pair ? rows_ * stride_ : 0),
        pair_(pair),
        held_(values.size()) {
    // Between the rows lies NaN, which nothing may read.
    std::vector<__half> hi(hi_.size(), __ushort_as_half(0x7e00));
    std::vector<__half> lo(lo_.size(), __ushort_as_half(0x7e00));
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t at = i / cols * stride_ + i % cols;
      const uint16_t high = ops::F32ToF16(values[i]);
      hi[at] = __ushort_as_half(high);
      held_[i] = ops::F16ToF32(high);
      if (!pair) continue;
      const uint16_t low = ops::F32ToF16(values[i] - ops::F16ToF32(high));
      lo[at] = __ushort_as_half(low);
      held_[i] += ops::F16ToF32(low);
    }
    hi_.Upload(hi);
    lo_.Upload(lo);
  }

  HalfRows view() {
    HalfRows rows;
    rows.hi = hi_.data();
    rows.lo = pair_ ? lo_.data() : nullptr;
    rows.stride = static_cast<int64_t>(stride_);
    return rows;
  }
  int rows() const { return static_cast<int>(rows_); }
  absl::Span<const double> Held(size_t row) const {
    return absl::MakeConstSpan(held_).subspan(row * cols_, cols_);
  }

 private:
  size_t cols_;
  size_t stride_;
  size_t rows_;
  DeviceArray<__half> hi_;
  DeviceArray<__half> lo_;
  bool pair_;
  std::vector<double> held_;
};

inline double Dot(absl::Span<const double> x, const std::vector<double>& w) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += x[i] * w[i];
  return sum;
}

// Of one result. A tensor core truncates (2^-23); the codes' part and the minimum's may
// each be some times the weight that they make up.
inline double MatmulTolerance(absl::Span<const double> x, const std::vector<double>& w) {
  return 4 * testing::DotTolerance(2 * testing::kEpsF32, w.size(), testing::Norm2(x),
                                   testing::Norm2(absl::MakeConstSpan(w)), 4);
}

// Of a small device with dependent launch, and of one without and with less memory.
inline DeviceInfo HopperLike() {
  DeviceInfo device;
  device.multiprocessors = 3;
  device.shared_bytes_per_multiprocessor = 228 * 1024;
  device.shared_bytes_per_block = 227 * 1024;
  device.dependent_launch = true;
  return device;
}
inline DeviceInfo AmpereLike() {
  DeviceInfo device;
  device.multiprocessors = 2;
  device.shared_bytes_per_multiprocessor = 100 * 1024;
  device.shared_bytes_per_block = 99 * 1024;
  return device;
}

}  // namespace tokend::cuda

#endif  // TOKEND_TESTS_CUDA_KERNELS_MATMUL_RIG_H_
