// Asynchronous copies, and launches that may start before the one before has ended.
#include "cuda_kernels/device/cp_async.cuh"
#include "cuda_kernels/device/dependent_launch.cuh"
#include "cuda_kernels/device/shared_memory.cuh"
#include "tests/simt/run_kernel.h"

namespace tokend::simt {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNan;

struct CopyParams {
  const float4* in = nullptr;  // [3]
  float* out = nullptr;        // [3]
};

class Copies : public SimtTest {
 protected:
  void SetLate(bool late) {
    Schedule schedule;
    schedule.late_copies = late;
    SetSchedule(schedule);
  }

  float4 in_[3] = {{1, 0, 0, 0}, {2, 0, 0, 0}, {3, 0, 0, 0}};
  float out_[3] = {};
};

// Groups: {0}, {1}, then {2} not closed.
template <int kPending>
__global__ void CopyKernel(CopyParams params) {
  float4* values = cuda::SharedArray<float4>(0, 3);
  for (int i = 0; i < 3; ++i) {
    cuda::CopyAsync16(values + i, params.in + i);
    if (i < 2) cuda::CommitCopies();
  }
  if constexpr (kPending >= 0) cuda::WaitForCopies<kPending>();
  for (int i = 0; i < 3; ++i) params.out[i] = values[i].x;
}

TEST_F(Copies, LandAtOnce) {
  SetLate(false);
  EXPECT_EQ(RunKernel(CopyKernel<-1>, CopyParams{in_, out_}, 1), "");
  EXPECT_THAT(out_, ElementsAre(1, 2, 3));
}

TEST_F(Copies, LandWhenTheirGroupIsWaitedFor) {
  SetLate(true);
  EXPECT_EQ(RunKernel(CopyKernel<-1>, CopyParams{in_, out_}, 1), "");
  EXPECT_THAT(out_, Each(IsNan()));
  EXPECT_EQ(RunKernel(CopyKernel<1>, CopyParams{in_, out_}, 1), "");
  EXPECT_THAT(out_, ElementsAre(1, IsNan(), IsNan()));
  EXPECT_EQ(RunKernel(CopyKernel<0>, CopyParams{in_, out_}, 1), "");
  EXPECT_THAT(out_, ElementsAre(1, 2, IsNan()));
}

__global__ void ZeroFillKernel(CopyParams params) {
  float4* values = cuda::SharedArray<float4>(0, 1);
  cuda::CopyAsync16(values, nullptr, false);
  cuda::CommitCopies();
  cuda::WaitForCopies<0>();
  params.out[0] = values[0].x + values[0].w;
}

TEST_F(Copies, InvalidOnesAreZeros) {
  for (const bool late : {false, true}) {
    SetLate(late);
    out_[0] = 5;
    EXPECT_EQ(RunKernel(ZeroFillKernel, CopyParams{in_, out_}, 1), "");
    EXPECT_EQ(out_[0], 0);
  }
}

__global__ void MisalignedCopyKernel(CopyParams params) {
  cuda::CopyAsync16(cuda::SharedArray<float>(0, 8) + 1, params.in);
}

__global__ void CopyToGlobalKernel(CopyParams params) { cuda::CopyAsync16(params.out, params.in); }

TEST_F(Copies, OddAddressesAreReported) {
  EXPECT_THAT(RunKernel(MisalignedCopyKernel, CopyParams{in_, out_}, 1),
              HasSubstr("multiple of 16"));
  EXPECT_THAT(RunKernel(CopyToGlobalKernel, CopyParams{in_, out_}, 1),
              HasSubstr("not the block's shared memory"));
}

__global__ void WaitsKernel(CopyParams params) {
  if (params.out == nullptr || threadIdx.x != 3) cuda::WaitForPreviousKernel();
}

TEST_F(Copies, EveryThreadOfADependentLaunchWaits) {
  cuda::LaunchDims dims;
  dims.threads = 32;
  dims.dependent = true;
  EXPECT_TRUE(cuda::Launch("Waits", WaitsKernel, dims, CopyParams{}, nullptr).ok());
  const absl::Status status =
      cuda::Launch("Waits", WaitsKernel, dims, CopyParams{in_, out_}, nullptr);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("exits a dependent launch without WaitForPreviousKernel()"));
  EXPECT_THAT(TakeFindings(), ElementsAre(HasSubstr("thread 3")));
}

}  // namespace
}  // namespace tokend::simt
