#include "tests/bench/paper/paper.h"

#include <cmath>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/simt/control.h"

namespace tokend::bench {
namespace {

PaperLaunch PlainLaunch() {
  PaperLaunch launch;
  launch.grid = 264;
  launch.threads = 256;
  launch.registers = 64;
  launch.shared_bytes = 50 << 10;
  launch.bytes = 43e6;
  launch.issued_bytes = 32 << 10;
  return launch;
}

TEST(LaunchTimeTest, ReadsAtFullBandwidthWithEnoughInFlight) {
  const PaperTime time = TimeOf(PlainLaunch(), H200());
  EXPECT_EQ(time.blocks, 4);  // by registers, 256 threads of 64
  EXPECT_NEAR(time.needed, 4300e9 * 0.8e-6 / 132, 1);
  EXPECT_NEAR(time.inflight, 2 * 32768, 1);
  EXPECT_NEAR(time.wave, 1, 1e-9);
  EXPECT_NEAR(time.seconds, 10e-6, 1e-9);
  EXPECT_STREQ(time.bound, "memory");
  EXPECT_NEAR(time.boundary, 1.3e-6, 1e-12);
}

TEST(LaunchTimeTest, EachLimitBinds) {
  PaperLaunch launch = PlainLaunch();
  launch.issued_bytes = 4096;  // two blocks: 8 KB of 26 KB
  EXPECT_NEAR(TimeOf(launch, H200()).seconds, 10e-6 * (4300e9 * 0.8e-6 / 132) / 8192, 1e-8);
  launch = PlainLaunch();
  launch.grid = 265;  // a third block on one multiprocessor
  EXPECT_NEAR(TimeOf(launch, H200()).wave, 265.0 / (3 * 132), 1e-9);
  launch = PlainLaunch();
  launch.instructions = 1e8;
  EXPECT_NEAR(TimeOf(launch, H200()).seconds, 1e8 / (132 * 4 * 1.755e9 * 0.7), 1e-9);
  launch.integer_instructions = 8e7;
  EXPECT_STREQ(TimeOf(launch, H200()).bound, "integer");
  launch.mma_flops = 1e12;
  EXPECT_STREQ(TimeOf(launch, H200()).bound, "mma");
  launch = PlainLaunch();
  launch.shared_bytes = 228 << 10;
  EXPECT_TRUE(std::isinf(TimeOf(launch, H200()).seconds));
}

TEST(LaunchTimeTest, UnevenBlocksFillWhatTheyFill) {
  PaperLaunch launch = PlainLaunch();
  launch.evenness = 0.8;
  EXPECT_NEAR(TimeOf(launch, H200()).seconds, 12.5e-6, 1e-9);
  launch.grid = 265;  // not at once with two of them on a multiprocessor
  launch.shared_bytes = 100 << 10;
  EXPECT_NEAR(TimeOf(launch, H200()).wave, 265.0 / (4 * 132), 1e-9);
}

TEST(LaunchTimeTest, DependentLaunchHidesTheFirstLatency) {
  PaperLaunch launch = PlainLaunch();
  launch.dependent = true;
  EXPECT_NEAR(TimeOf(launch, H200()).boundary, 0.5e-6, 1e-12);
  EXPECT_NEAR(TimeOf(launch, Targets()[0]).boundary, 1.3e-6, 1e-12);  // code of sm_86 has none
}

// Needs what nvcc made of the kernels.
class PaperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto facts = CodeFacts::Read(TOKEND_CODE_FACTS);
    if (!facts.ok()) GTEST_SKIP() << facts.status().message();
    simt::DeviceModel device;
    device.memory_bytes = size_t{8} << 30;
    simt::SetDevice(device);
    paper_ = std::make_unique<Paper>(*std::move(facts));
  }

  std::unique_ptr<Paper> paper_;
};

TEST_F(PaperTest, AStepReadsEveryWeightOnce) {
  const testing::ModelShape& shape = *testing::FindShape("llama-3-8b");
  const auto result = paper_->Time(shape, testing::WeightMix::kF16, {}, H200());
  ASSERT_TRUE(result.ok()) << result.status();
  double bytes = 0;
  int launches = 0;
  for (const TimedLaunch& timed : result->launches) {
    bytes += timed.count * timed.launch.bytes;
    launches += timed.count;
    EXPECT_GT(timed.time.blocks, 0) << timed.launch.name;
  }
  EXPECT_NEAR(bytes / H200().bandwidth, result->floor, 0.01 * result->floor);
  EXPECT_LE(launches, 5 * shape.layers + 6);
}

TEST_F(PaperTest, AnH200DoesWhatIsAskedOfIt) {
  for (const Goal& goal : Goals()) {
    const auto reached = paper_->Reached(goal, H200());
    ASSERT_TRUE(reached.ok()) << reached.status();
    SCOPED_TRACE(std::string(goal.shape) + " " + std::string(testing::WeightMixName(goal.mix)));
    EXPECT_GE(*reached, goal.today == 0 ? goal.at_least : goal.today);
    if (goal.today > 0) {
      EXPECT_LT(*reached, goal.at_least) << "is met: no longer a known miss";
    }
  }
}

}  // namespace
}  // namespace tokend::bench
