#include "cuda_kernels/backend/device_limits.h"

#include "cuda_kernels/runtime/device.h"
#include "gtest/gtest.h"

namespace tokend::cuda {
namespace {

TEST(DeviceLimitsTest, MeasuresAll) {
  const auto device = OpenDevice(0);
  ASSERT_TRUE(device.ok()) << device.status();
  DeviceLimitsOptions options;
  options.read_bytes = 4096 * 100 + 16;  // rounded
  options.graph_nodes = 4;
  options.matmul_size = 256;
  options.runs = 2;
  const auto limits = MeasureDeviceLimits(*device, options);
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_GT(limits->read_bandwidth, 0);
  EXPECT_GT(limits->graph_node_seconds, 0);
  EXPECT_EQ(limits->dependent_node_seconds > 0, device->dependent_launch);
  EXPECT_GE(limits->matmul_flops, 0);
}

}  // namespace
}  // namespace tokend::cuda
