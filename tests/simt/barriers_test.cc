// Each bug that the stand-in must find, planted once.
#include "cuda_kernels/device/shared_memory.cuh"
#include "tests/simt/run_kernel.h"

namespace tokend::simt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Out {
  float* out = nullptr;
};

class Barriers : public SimtTest {};

__global__ void SumOfBlockKernel(Out params) {
  float* values = cuda::SharedArray<float>(0, 64);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  for (unsigned step = 32; step > 0; step /= 2) {
    if (threadIdx.x < step) values[threadIdx.x] += values[threadIdx.x + step];
    __syncthreads();
  }
  params.out[blockIdx.x] = values[0];
}

TEST_F(Barriers, OrderThreads) {
  for (const Order order : {Order::kAscending, Order::kDescending, Order::kInterleaved}) {
    Schedule schedule;
    schedule.warps = schedule.blocks = order;
    SetSchedule(schedule);
    float out[3] = {};
    EXPECT_EQ(RunKernel(SumOfBlockKernel, Out{out}, 64, 3), "");
    EXPECT_THAT(out, testing::Each(2016.0f));
  }
}

__global__ void DivergentBarrierKernel(Out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_F(Barriers, DivergentOneIsReported) {
  EXPECT_THAT(RunKernel(DivergentBarrierKernel, Out{}, 64, 1),
              AllOf(HasSubstr("kernel Planted, block (0, 0, 0), thread 32"),
                    HasSubstr("divergent barrier: others wait at barriers_test.cc:")));
}

__global__ void ExitBeforeBarrierKernel(Out) {
  if (threadIdx.x == 5) return;
  __syncthreads();
}

TEST_F(Barriers, ThreadThatNeverComesIsReported) {
  EXPECT_THAT(RunKernel(ExitBeforeBarrierKernel, Out{}),
              AllOf(HasSubstr("thread 5 at Planted"), HasSubstr("exits while others wait")));
  Schedule schedule;
  schedule.warps = Order::kDescending;
  SetSchedule(schedule);
  EXPECT_THAT(RunKernel(ExitBeforeBarrierKernel, Out{}, 6),
              AllOf(HasSubstr("thread 4"), HasSubstr("never reach: they exited")));
}

__global__ void DeadlockKernel(Out) {
  if (threadIdx.x == 33) __syncwarp();
  __syncthreads();
}

TEST_F(Barriers, DeadlockNamesWhoWaitsWhere) {
  EXPECT_THAT(RunKernel(DeadlockKernel, Out{}),
              AllOf(HasSubstr("deadlock"), HasSubstr("barrier: threads 0-32 at barriers_test.cc:"),
                    HasSubstr("34-63 at"), HasSubstr("warp operations: threads 33-33 at")));
}

__global__ void NamesExitedLaneKernel(Out) {
  if (threadIdx.x % 32 < 4) return;
  __syncwarp();
}

__global__ void NotInOwnMaskKernel(Out) { __syncwarp(0xfffffffeu); }

__global__ void LaneThatNeverComesKernel(Out) {
  if (threadIdx.x % 32 < 31) __syncwarp();
}

TEST_F(Barriers, WarpMasksAreHeldExact) {
  EXPECT_THAT(RunKernel(NamesExitedLaneKernel, Out{}),
              HasSubstr("the mask names a lane that has exited"));
  EXPECT_THAT(RunKernel(NotInOwnMaskKernel, Out{}), HasSubstr("the lane is not in the mask"));
  EXPECT_THAT(RunKernel(LaneThatNeverComesKernel, Out{}),
              AllOf(HasSubstr("thread 31"), HasSubstr("exits while its warp waits for it")));
}

__global__ void UnwrittenSharedKernel(Out params) {
  params.out[blockIdx.x] = cuda::SharedArray<float>(0, 64)[3];
  cuda::SharedArray<float>(0, 64)[3] = 1.0f;
}

TEST_F(Barriers, SharedMemoryIsNanBeforeEachBlock) {
  float out[2] = {};
  EXPECT_EQ(RunKernel(UnwrittenSharedKernel, Out{out}, 1, 2), "");
  EXPECT_THAT(out, testing::Each(testing::IsNan()));
}

struct TooLong {
  float values[64];
};

__global__ void SharedBeyondLaunchKernel(Out) { cuda::SharedMemory<TooLong>(); }

TEST_F(Barriers, SharedMemoryBeyondTheLaunchIsReported) {
  EXPECT_EQ(RunKernel(SharedBeyondLaunchKernel, Out{}, 64, 1, 256), "");
  EXPECT_THAT(RunKernel(SharedBeyondLaunchKernel, Out{}, 64, 1, 255),
              HasSubstr("beyond the launch's 255"));
}

__global__ void WriteBehindSharedKernel(Out) {
  cuda::SharedArray<unsigned char>(0, 64)[threadIdx.x + 1] = 0;
}

TEST_F(Barriers, WriteBehindSharedMemoryIsReported) {
  EXPECT_EQ(RunKernel(WriteBehindSharedKernel, Out{}, 63, 1, 64), "");
#ifdef __SANITIZE_ADDRESS__
  EXPECT_DEATH(RunKernel(WriteBehindSharedKernel, Out{}, 64, 1, 64), "use-after-poison");
#else
  EXPECT_THAT(RunKernel(WriteBehindSharedKernel, Out{}, 64, 1, 64),
              HasSubstr("behind shared memory"));
#endif
}

__global__ void TrapKernel(Out) {
  if (threadIdx.x == 7) __trap();
}

TEST_F(Barriers, TrapIsReported) {
  EXPECT_THAT(RunKernel(TrapKernel, Out{}), HasSubstr("thread 7"));
}

TEST_F(Barriers, ADroppedOneDoesNothing) {
  float with = 0;
  float without = 0;
  EXPECT_EQ(RunKernel(SumOfBlockKernel, Out{&with}), "");
  std::vector<std::string> sites;
  for (int line = 0; line < 40; ++line) {
    sites.push_back("barriers_test.cc:" + std::to_string(line));
  }
  DropBarriers(sites);
  EXPECT_EQ(RunKernel(SumOfBlockKernel, Out{&without}), "");
  EXPECT_EQ(with, 2016.0f);
  EXPECT_NE(without, with);
}

}  // namespace
}  // namespace tokend::simt
