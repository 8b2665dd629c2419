// Bugs that AddressSanitizer and UndefinedBehaviorSanitizer find in kernels: each ends
// the process. In the build with both alone.
#include <string>

#include "cuda_kernels/device/shared_memory.cuh"
#include "tests/simt/run_kernel.h"

namespace tokend::simt {
namespace {

enum class Bug {
  kNone,
  kMisaligned,
  kMisalignedShared,
  kBehindDevice,
  kBehindShared,
  kBehindLocal
};

struct BugParams {
  Bug bug = Bug::kNone;
  const float* in = nullptr;  // [8], 16-byte aligned, on the device
  float* out = nullptr;       // [8]
};

__global__ void BuggyKernel(BugParams params) {
  float* values = cuda::SharedArray<float>(0, 8);
  const int lane = static_cast<int>(threadIdx.x);
  values[lane] = params.in[params.bug == Bug::kBehindDevice ? lane + 1 : lane];
  __syncthreads();
  float local[4] = {1, 2, 3, 4};
  if (params.bug == Bug::kMisaligned) {
    params.out[lane] = reinterpret_cast<const float4*>(params.in + 1)->y;
  } else if (params.bug == Bug::kMisalignedShared) {
    params.out[lane] = reinterpret_cast<const float2*>(values + 1)->x;
  } else if (params.bug == Bug::kBehindShared) {
    params.out[lane] = values[8 + lane];
  } else {
    // Each thread's local array is on its own stack. Behind a barrier the index is no constant.
    float* array = local;
    const int index = static_cast<int>(values[lane]) + (params.bug == Bug::kBehindLocal ? 1 : 0);
    asm volatile("" : "+r"(array));
    params.out[lane] = array[index % 5];
  }
}

class SanitizerTest : public SimtTest {
 protected:
  void SetUp() override {
    SimtTest::SetUp();
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&in_), 8 * sizeof(float)), cudaSuccess);
    for (int i = 0; i < 8; ++i) in_[i] = 3;
  }
  void TearDown() override {
    cudaFree(in_);
    SimtTest::TearDown();
  }

  std::string Run(Bug bug) {
    float out[8];
    return RunKernel(BuggyKernel, BugParams{bug, in_, out}, 8, 1, 32);
  }

  float* in_ = nullptr;
};

TEST_F(SanitizerTest, NothingIsFoundWhereNothingIs) { EXPECT_EQ(Run(Bug::kNone), ""); }

TEST_F(SanitizerTest, MisalignedVectorLoads) {
  EXPECT_DEATH(Run(Bug::kMisaligned), "misaligned address");
  EXPECT_DEATH(Run(Bug::kMisalignedShared), "misaligned address");
}

TEST_F(SanitizerTest, ReadsBehindDeviceMemory) {
  EXPECT_DEATH(Run(Bug::kBehindDevice), "heap-buffer-overflow");
}

TEST_F(SanitizerTest, ReadsBehindSharedMemory) {
  EXPECT_DEATH(Run(Bug::kBehindShared), "use-after-poison");
}

TEST_F(SanitizerTest, ReadsBehindALocalArray) {
  EXPECT_DEATH(Run(Bug::kBehindLocal), "stack-buffer-overflow");
}

}  // namespace
}  // namespace tokend::simt
