// What each order of warps, lanes and blocks brings to light.
#include "cuda_kernels/device/shared_memory.cuh"
#include "tests/simt/run_kernel.h"

namespace tokend::simt {
namespace {

struct Out {
  int* out = nullptr;
  int* counter = nullptr;
};

class Schedules : public SimtTest {
 protected:
  static void Set(Order warps, Order blocks) {
    Schedule schedule;
    schedule.warps = warps;
    schedule.blocks = blocks;
    SetSchedule(schedule);
  }
};

// Which thread, or block, came first, second ...
__global__ void OrderKernel(Out params) {
  params.out[atomicAdd(params.counter, 1)] = blockIdx.x * blockDim.x + threadIdx.x;
}

std::vector<int> Trace(unsigned threads, unsigned blocks) {
  std::vector<int> out(threads * blocks);
  int counter = 0;
  EXPECT_EQ(RunKernel(OrderKernel, Out{out.data(), &counter}, threads, blocks), "");
  return out;
}

TEST_F(Schedules, ThreadsRunInOrder) {
  Set(Order::kAscending, Order::kAscending);
  std::vector<int> ascending = Trace(64, 1);
  EXPECT_TRUE(std::is_sorted(ascending.begin(), ascending.end()));
  Set(Order::kDescending, Order::kAscending);
  std::vector<int> descending = Trace(64, 1);
  EXPECT_TRUE(std::is_sorted(descending.rbegin(), descending.rend()));
}

TEST_F(Schedules, BlocksRunInOrder) {
  Set(Order::kAscending, Order::kAscending);
  EXPECT_THAT(Trace(1, 5), testing::ElementsAre(0, 1, 2, 3, 4));
  Set(Order::kAscending, Order::kDescending);
  EXPECT_THAT(Trace(1, 5), testing::ElementsAre(4, 3, 2, 1, 0));
  Set(Order::kAscending, Order::kInterleaved);
  EXPECT_THAT(Trace(1, 5), testing::ElementsAre(0, 3, 1, 4, 2));
}

// One warp writes, the other reads, and the next round writes again: without the
// second barrier one of the two orders reads what the next round wrote.
__global__ void ReuseKernel(Out params) {
  int* value = cuda::SharedArray<int>(0, 1);
  for (int round = 0; round < 2; ++round) {
    if (threadIdx.x == 0) *value = round;
    __syncthreads();
    if (threadIdx.x == 32) params.out[round] = *value;
    if (params.counter != nullptr) __syncthreads();
  }
}

TEST_F(Schedules, OneOfBothShowsAMissingBarrierOnReuse) {
  int counter = 0;
  int wrong = 0;
  for (const Order warps : {Order::kAscending, Order::kDescending}) {
    Set(warps, Order::kAscending);
    int out[2] = {};
    EXPECT_EQ(RunKernel(ReuseKernel, Out{out, &counter}), "");
    EXPECT_THAT(out, testing::ElementsAre(0, 1));
    EXPECT_EQ(RunKernel(ReuseKernel, Out{out, nullptr}), "");
    wrong += out[0] != 0;
  }
  EXPECT_EQ(wrong, 1);
}

// A lane reads its neighbour's value without __syncwarp: right in one order alone.
__global__ void NeighbourKernel(Out params) {
  int* values = cuda::SharedArray<int>(0, 33);
  values[threadIdx.x] = 1;
  if (params.counter != nullptr) __syncwarp();
  params.out[threadIdx.x] = threadIdx.x > 0 ? values[threadIdx.x - 1] : 1;
}

TEST_F(Schedules, OneOfBothShowsAMissingSyncwarp) {
  int counter = 0;
  int wrong = 0;
  for (const Order warps : {Order::kAscending, Order::kDescending}) {
    Set(warps, Order::kAscending);
    int out[32] = {};
    EXPECT_EQ(RunKernel(NeighbourKernel, Out{out, &counter}, 32), "");
    EXPECT_THAT(out, testing::Each(1));
    EXPECT_EQ(RunKernel(NeighbourKernel, Out{out, nullptr}, 32), "");
    wrong += std::count(out, out + 32, 1) != 32;
  }
  EXPECT_EQ(wrong, 1);
}

// The last block adds up; one that does not reset the counter is right only once.
__global__ void LastBlockKernel(Out params) {
  const bool last = atomicAdd(params.counter, 1) == static_cast<int>(gridDim.x) - 1;
  if (last) *params.out += 1;
}

TEST_F(Schedules, ASecondRunShowsAStaleCounter) {
  int counter = 0;
  int out = 0;
  EXPECT_EQ(RunKernel(LastBlockKernel, Out{&out, &counter}, 1, 4), "");
  EXPECT_EQ(RunKernel(LastBlockKernel, Out{&out, &counter}, 1, 4), "");
  EXPECT_EQ(out, 1);
}

}  // namespace
}  // namespace tokend::simt
