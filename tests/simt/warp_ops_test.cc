// Shuffles, votes and products against their definitions in the PTX manual.
#include <algorithm>
#include <random>

#include "cuda_kernels/device/mma.cuh"
#include "tests/simt/run_kernel.h"

namespace tokend::simt {
namespace {

using ::testing::HasSubstr;

class WarpOps : public SimtTest {};

struct ShuffleParams {
  int* out = nullptr;  // [4, 32]
  int argument = 0;
  int width = 32;
};

__global__ void ShuffleKernel(ShuffleParams params) {
  const int lane = static_cast<int>(threadIdx.x);
  params.out[lane] = __shfl_sync(~0u, lane, params.argument, params.width);
  params.out[32 + lane] = __shfl_up_sync(~0u, lane, params.argument, params.width);
  params.out[64 + lane] = __shfl_down_sync(~0u, lane, params.argument, params.width);
  params.out[96 + lane] = __shfl_xor_sync(~0u, lane, params.argument, params.width);
}

TEST_F(WarpOps, ShufflesReadTheirLane) {
  for (const int width : {32, 16, 8, 4, 2}) {
    for (int argument = 0; argument < 32; ++argument) {
      int out[4][32];
      ASSERT_EQ(RunKernel(ShuffleKernel, ShuffleParams{out[0], argument, width}, 32), "");
      for (int lane = 0; lane < 32; ++lane) {
        const int first = lane / width * width;
        const int last = first + width - 1;
        EXPECT_EQ(out[0][lane], first + argument % width);
        EXPECT_EQ(out[1][lane], lane - argument < first ? lane : lane - argument);
        EXPECT_EQ(out[2][lane], lane + argument > last ? lane : lane + argument);
        EXPECT_EQ(out[3][lane], (lane ^ argument) > last ? lane : lane ^ argument);
      }
    }
  }
}

struct VoteParams {
  unsigned* out = nullptr;  // [6, 32]
};

__global__ void VoteKernel(VoteParams params) {
  const unsigned lane = threadIdx.x;
  const unsigned mask = lane < 8 ? 0xffu : 0xffffff00u;
  unsigned* out = params.out + lane;
  out[0] = __ballot_sync(mask, lane % 3 == 0);
  out[32] = __reduce_add_sync(mask, lane);
  out[64] = static_cast<unsigned>(__reduce_min_sync(mask, -static_cast<int>(lane)));
  out[96] = __reduce_max_sync(mask, lane);
  out[128] = __match_any_sync(mask, lane % 4);
  out[160] = static_cast<unsigned>(__all_sync(mask, lane < 8));
}

TEST_F(WarpOps, VotesCountTheMasksLanesAlone) {
  unsigned out[6][32];
  ASSERT_EQ(RunKernel(VoteKernel, VoteParams{out[0]}, 32), "");
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned mask = lane < 8 ? 0xffu : 0xffffff00u;
    EXPECT_EQ(out[0][lane], 0x49249249u & mask);
    EXPECT_EQ(out[1][lane], lane < 8 ? 28u : 468u);
    EXPECT_EQ(static_cast<int>(out[2][lane]), lane < 8 ? -7 : -31);
    EXPECT_EQ(out[3][lane], lane < 8 ? 7u : 31u);
    EXPECT_EQ(out[4][lane], (0x11111111u << lane % 4) & mask);
    EXPECT_EQ(out[5][lane], lane < 8 ? 1u : 0u);
  }
}

__global__ void ReadsOutsideMaskKernel(ShuffleParams params) {
  if (threadIdx.x < 16) params.out[threadIdx.x] = __shfl_xor_sync(0xffffu, 1, 16);
}

__global__ void DivergentShuffleKernel(ShuffleParams params) {
  if (threadIdx.x < 16) {
    params.out[threadIdx.x] = __shfl_xor_sync(~0u, 1, 1);
  } else {
    params.out[threadIdx.x] = __shfl_xor_sync(~0u, 1, 1);
  }
}

TEST_F(WarpOps, MasksAreHeldExact) {
  int out[32];
  EXPECT_THAT(RunKernel(ReadsOutsideMaskKernel, ShuffleParams{out}, 32),
              HasSubstr("lane 0 reads from a lane that the mask does not name"));
  EXPECT_THAT(RunKernel(DivergentShuffleKernel, ShuffleParams{out}, 32),
              HasSubstr("divergent warp"));
}

struct MmaParams {
  const __half* a = nullptr;  // [16, 16]
  const __half* b = nullptr;  // [16, 8]
  float* d = nullptr;         // [16, 8], added to
};

__device__ uint32_t Pair(__half low, __half high) {
  return static_cast<uint32_t>(__half_as_ushort(low)) |
         static_cast<uint32_t>(__half_as_ushort(high)) << 16;
}

__global__ void MmaKernel(MmaParams params) {
  const int g = cuda::Lane() / 4;
  const int t = cuda::Lane() % 4;
  uint32_t a[4];
  uint32_t b[2];
  float d[4];
  for (int i = 0; i < 4; ++i) {
    const __half* at = params.a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
    a[i] = Pair(at[0], at[1]);
  }
  for (int i = 0; i < 2; ++i) {
    const __half* at = params.b + (2 * t + i * 8) * 8 + g;
    b[i] = Pair(at[0], at[8]);
  }
  for (int i = 0; i < 4; ++i) d[i] = params.d[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  cuda::MmaF16(d, a, b);
  for (int i = 0; i < 4; ++i) params.d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

TEST_F(WarpOps, ProductIsRoundedOnceOrAfterEachHalf) {
  std::mt19937 random(20261130);
  std::normal_distribution<float> normal;
  std::vector<__half> a(16 * 16);
  std::vector<__half> b(16 * 8);
  std::vector<float> c(16 * 8);
  for (__half& x : a) x = __float2half(normal(random));
  for (__half& x : b) x = __float2half(normal(random));
  for (float& x : c) x = 100 * normal(random);
  a[5] = __ushort_as_half(3);     // subnormal
  b[7] = __float2half(INFINITY);  // [0][7]
  a[16] = __float2half(0.0f);     // row 1 x column 7: 0 x Inf
  int different = 0;
  std::vector<float> one;
  for (const bool split : {false, true}) {
    Schedule schedule;
    schedule.split_mma_sums = split;
    SetSchedule(schedule);
    std::vector<float> d = c;
    ASSERT_EQ(RunKernel(MmaKernel, MmaParams{a.data(), b.data(), d.data()}, 32), "");
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 8; ++j) {
        float expected = c[i * 8 + j];
        for (int first = 0; first < 16; first += split ? 8 : 16) {
          double sum = expected;
          for (int k = first; k < first + (split ? 8 : 16); ++k) {
            sum += static_cast<double>(__half2float(a[i * 16 + k])) * __half2float(b[k * 8 + j]);
          }
          expected = static_cast<float>(sum);
        }
        EXPECT_TRUE(d[i * 8 + j] == expected || (std::isnan(expected) && std::isnan(d[i * 8 + j])))
            << i << ' ' << j;
        if (split && !std::isnan(expected)) different += one[i * 8 + j] != expected;
      }
    }
    one = d;
  }
  EXPECT_GT(different, 4) << "the two modes have to differ";
}

}  // namespace
}  // namespace tokend::simt
