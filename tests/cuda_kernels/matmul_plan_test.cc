// How the matmul is cut, for devices of several sizes.
#include <algorithm>
#include <utility>
#include <vector>

#include "cuda_kernels/kernels/matmul_launch.h"
#include "gtest/gtest.h"

namespace tokend::cuda {
namespace {

DeviceInfo Device(int multiprocessors, int kilobytes, bool dependent_launch) {
  DeviceInfo device;
  device.multiprocessors = multiprocessors;
  device.shared_bytes_per_multiprocessor = kilobytes * 1024;
  device.shared_bytes_per_block = (kilobytes - 1) * 1024;
  device.dependent_launch = dependent_launch;
  return device;
}

Matmul MatmulOf(PackedFormat format, int rows, int outputs, int cols) {
  static __half row;
  Matmul matmul;
  matmul.rows = rows;
  matmul.input.half.hi = &row;
  matmul.segments[0].matrix.format = format;
  matmul.segments[0].matrix.outputs = outputs;
  matmul.segments[0].matrix.cols = cols;
  return matmul;
}

// What a slot holds never crosses a record, and all of a grid runs at once.
void CheckPlan(const MatmulLaunch& launch, const DeviceInfo& device) {
  const MatmulParams& params = launch.params;
  const SegmentPlan& plan = params.plans[0];
  EXPECT_LE(launch.shared_bytes, static_cast<size_t>(device.shared_bytes_per_block));
  EXPECT_LE(static_cast<size_t>(params.ring_at + kMatmulWarps * params.stages * params.slot_bytes),
            launch.shared_bytes);
  EXPECT_LE(plan.tile_slot_bytes, kMaxSlotWeightBytes);
  if (plan.record_shift > 0) {
    EXPECT_EQ((1 << plan.record_shift) % plan.slot_blocks, 0);
  }
  EXPECT_EQ(plan.first_block, 0);
  EXPECT_EQ(static_cast<unsigned>(plan.blocks), launch.grid_x);
  EXPECT_LE(launch.grid_x, static_cast<unsigned>(4 * device.multiprocessors));
  EXPECT_LE(plan.blocks, plan.tiles);
}

TEST(MatmulPlanTest, FitsEveryDevice) {
  for (const DeviceInfo& device :
       {Device(28, 100, false), Device(16, 164, false), Device(132, 228, true)}) {
    for (const PackedFormat format :
         {PackedFormat::kF16, PackedFormat::kQ4_0, PackedFormat::kQ4_1, PackedFormat::kQ5_0,
          PackedFormat::kQ5_1, PackedFormat::kQ8_0, PackedFormat::kQ4_K, PackedFormat::kQ5_K,
          PackedFormat::kQ6_K}) {
      for (const int rows : {1, 4, 8, 16, 32}) {
        for (const int cols : {256, 768, 4096, 14336}) {
          SCOPED_TRACE(::testing::Message()
                       << device.multiprocessors << " multiprocessors, format "
                       << static_cast<int>(format) << ", " << rows << " rows of " << cols);
          const absl::StatusOr<MatmulLaunch> launch =
              PlanMatmulDecode(MatmulOf(format, rows, 4096, cols), 4, device);
          ASSERT_TRUE(launch.ok()) << launch.status();
          CheckPlan(*launch, device);
        }
      }
    }
  }
}

// Every set is in one block, in order, and no multiprocessor has more than it must, but
// for what the ends of matrices cost.
void CheckDeal(const MatmulLaunch& launch, const std::vector<int>& outputs, int multiprocessors) {
  std::vector<int> load(static_cast<size_t>(multiprocessors));
  int blocks = 0;
  int total = 0;
  for (size_t s = 0; s < outputs.size(); ++s) {
    const SegmentPlan& plan = launch.params.plans[s];
    EXPECT_EQ(plan.first_block, blocks);
    int next = 0;
    for (int block = 0; block < plan.blocks; ++block, ++blocks) {
      const SetRange sets = SetsOf(plan, block);
      EXPECT_EQ(sets.begin, next);
      EXPECT_GT(sets.end, sets.begin);
      next = sets.end;
      load[static_cast<size_t>(blocks % multiprocessors)] += sets.end - sets.begin;
    }
    EXPECT_EQ(next, (outputs[s] + 15) / 16);
    total += next;
  }
  EXPECT_EQ(static_cast<unsigned>(blocks), launch.grid_x);
  EXPECT_LE(*std::max_element(load.begin(), load.end()),
            (total + multiprocessors - 1) / multiprocessors + static_cast<int>(outputs.size()));
}

TEST(MatmulPlanTest, DealsSetsEvenly) {
  const std::vector<int> shapes[] = {{4096, 1024, 1024},
                                     {3072, 3072, 3072},
                                     {576, 192, 192},
                                     {16, 16, 16},
                                     {14336},
                                     {128256},
                                     {40}};
  for (const auto& [multiprocessors, dependent] :
       {std::pair(132, true), std::pair(16, false), std::pair(1, true)}) {
    for (const std::vector<int>& outputs : shapes) {
      Matmul matmul = MatmulOf(PackedFormat::kQ4_0, 1, 0, 4096);
      matmul.segment_count = static_cast<int>(outputs.size());
      for (size_t s = 0; s < outputs.size(); ++s) {
        matmul.segments[s].matrix = matmul.segments[0].matrix;
        matmul.segments[s].matrix.outputs = outputs[s];
      }
      SCOPED_TRACE(::testing::Message() << multiprocessors << " multiprocessors, " << outputs[0]);
      const auto launch = PlanMatmulDecode(matmul, 4, Device(multiprocessors, 228, dependent));
      ASSERT_TRUE(launch.ok()) << launch.status();
      CheckDeal(*launch, outputs, multiprocessors);
    }
  }
}

// An H200 needs 30 KB of weights under way on each multiprocessor, which half of it holds.
TEST(MatmulPlanTest, KeepsAnH200Busy) {
  const DeviceInfo device = Device(132, 228, true);
  for (const PackedFormat format : {PackedFormat::kF16, PackedFormat::kQ4_0, PackedFormat::kQ8_0,
                                    PackedFormat::kQ4_K, PackedFormat::kQ6_K}) {
    const absl::StatusOr<MatmulLaunch> launch =
        PlanMatmulDecode(MatmulOf(format, 1, 14336, 4096), 4, device);
    ASSERT_TRUE(launch.ok());
    const MatmulParams& params = launch->params;
    EXPECT_LE(launch->shared_bytes, 56u * 1024);
    EXPECT_GE(2 * kMatmulWarps * (params.stages - 1) * params.plans[0].tile_slot_bytes, 30000);
    EXPECT_GT(launch->grid_x, 200u);
  }
}

TEST(MatmulPlanTest, RefusesWhatNoBlockHolds) {
  static float residual;
  Matmul matmul = MatmulOf(PackedFormat::kQ4_0, 4, 64, 32768);
  matmul.input.residual = &residual;
  const absl::Status status = PlanMatmulDecode(matmul, 4, Device(28, 100, false)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("32768"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tokend::cuda
