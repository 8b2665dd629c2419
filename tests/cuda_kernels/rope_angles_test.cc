#include <cmath>
#include <limits>

#include "core/ops/rope.h"
#include "cuda_kernels/kernels/attention.h"
#include "tests/cuda_kernels/device_array.h"

namespace tokend::cuda {
namespace {

class RopeAnglesTest : public DeviceTest {};

TEST_F(RopeAnglesTest, AreThoseOfTheReferenceAtAnyPosition) {
  for (const int dims : {2, 20, 64, 128}) {
    ops::Rope rope;
    rope.dims = dims;
    for (int i = 0; i < dims / 2; ++i) {
      rope.inverse_frequencies.push_back(std::pow(10000.0, -2.0 * i / dims));
    }
    const std::vector<int64_t> positions = {0, 1, 255, 256, 131071, 10'000'000'000, 7};
    const auto pairs = static_cast<size_t>(dims / 2);
    const StepCounts counts = {.angle_rows = 6};  // the last position is not of the step
    const DeviceArray<StepCounts> device_counts({counts});
    const DeviceArray<int64_t> device_positions(positions);
    const DeviceArray<double> frequencies(rope.inverse_frequencies);
    DeviceArray<float> cos(6 * pairs), sin(6 * pairs);
    for (const double magnitude : {1.0, 1.25}) {
      RopeAnglesParams params;
      params.counts = device_counts.data();
      params.positions = device_positions.data();
      params.inverse_frequencies = frequencies.data();
      params.magnitude = magnitude;
      params.table = {cos.data(), sin.data(), dims, false};
      params.max_angle_rows = 40;
      ASSERT_EQ(RopeAngles(params, nullptr), absl::OkStatus());
      const std::vector<float> got_cos = cos.Download(), got_sin = sin.Download();
      for (size_t row = 0; row < 6; ++row) {
        for (size_t i = 0; i < pairs; ++i) {
          const double angle = static_cast<double>(positions[row]) * rope.inverse_frequencies[i];
          // One rounding to f32, and a device's cos in double may differ in its last bit.
          const double bound = magnitude * 0x1.001p-24;
          EXPECT_NEAR(got_cos[row * pairs + i], std::cos(angle) * magnitude, bound);
          EXPECT_NEAR(got_sin[row * pairs + i], std::sin(angle) * magnitude, bound);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tokend::cuda
