#include "tests/simt/shadow_kernels.h"

#include "cuda_kernels/device/cp_async.cuh"
#include "cuda_kernels/device/dependent_launch.cuh"
#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/device/shared_memory.cuh"

namespace tokend::simt {
namespace {

struct Shared {
  float values[64];  // [0, 256)
  __half halves[8];  // [256, 272)
  uint4 vectors[4];  // [272, 336)
};
constexpr size_t kGap = 512;  // bytes up to the copies' array
constexpr size_t kSharedBytes = kGap + 64 * 16;

__device__ void BetweenThreads(const BuggyParams& params, Shared& shared) {
  const unsigned thread = threadIdx.x;
  shared.values[thread] = 1.0f;
  if (params.bug != Bug::kMissingBarrier) __syncthreads();
  float sum = shared.values[63 - thread];
  if (params.bug != Bug::kMissingBarrierOnReuse) __syncthreads();
  if (thread == 5) shared.values[7] = sum;
  __syncthreads();

  shared.values[thread] = sum;
  if (params.bug == Bug::kShuffleAsBarrier) {
    sum += __shfl_xor_sync(cuda::kAllLanes, sum, 1);
  } else if (params.bug == Bug::kPartialSyncwarp) {
    __syncwarp(thread % 32 < 31 ? 0x7fffffffu : 0x80000000u);
  } else if (params.bug != Bug::kMissingSyncwarp) {
    __syncwarp();
  }
  sum += shared.values[thread ^ 1];
  __syncthreads();

  if (thread == 0) shared.halves[2] = __float2half(sum);
  if (thread == 0 && params.bug == Bug::kUnwrittenShared) sum += __half2float(shared.halves[3]);
  if (thread == 0) shared.vectors[1].x = shared.vectors[1].y = 1;
  if (thread == 0 && params.bug != Bug::kUnwrittenVector) {
    shared.vectors[1].z = shared.vectors[1].w = 1;
  }
  if (thread == 0) shared.vectors[2] = shared.vectors[1];
  if (params.bug == Bug::kOutsideSharedArray) cuda::SharedArray<float>(kGap, 4)[-1] = sum;
  __syncthreads();
}

__device__ void WithCopies(const BuggyParams& params) {
  const unsigned thread = threadIdx.x;
  auto* copied = cuda::SharedArray<float4>(kGap, 64);
  cuda::CopyAsync16(copied + thread, params.input + thread / 4 * 4);
  cuda::CommitCopies();
  if (params.bug != Bug::kCopyNotWaited) cuda::WaitForCopies<0>();
  if (params.bug != Bug::kCopyNotPublished) __syncthreads();
  const float x = copied[63 - thread].x;
  if (params.bug != Bug::kCopyOverRead) __syncthreads();
  if (thread == 9) cuda::CopyAsync16(copied + 3, params.input);
  cuda::CommitCopies();
  cuda::WaitForCopies<0>();
  __syncthreads();
  if (x == -1.0f) copied[thread].y = x;
}

__device__ void InGlobalMemory(const BuggyParams& params, Shared& shared) {
  const unsigned thread = threadIdx.x;
  if (blockIdx.x == 0 && thread < 32) params.data[thread] = 1.0f;
  if (blockIdx.x == 1 && thread >= 32) params.data[thread] = 1.0f;
  if (params.bug == Bug::kGlobalRace && blockIdx.x == 0 && thread == 40) params.data[3] = 1.0f;
  if (params.bug == Bug::kBlocksConflict && blockIdx.x == 1 && thread == 0) params.data[3] = 1.0f;
  if (params.bug == Bug::kOutsideAllocation && thread == 7) params.data[64] = 1.0f;
  if (params.bug != Bug::kNoFence) __threadfence();
  if (params.bug != Bug::kNoBarrierBeforeAtomic) __syncthreads();
  if (thread == 0) {
    shared.values[0] = atomicAdd(params.counter, 1u) == gridDim.x - 1 ? 1.0f : 0.0f;
  }
  __syncthreads();
  if (shared.values[0] == 0.0f) return;
  const float other = params.data[63 - thread];
  __syncthreads();
  params.data[thread] = other + 1.0f;
  if (thread == 0) *params.counter = 0;
}

__global__ void BuggyKernel(BuggyParams params) {
  auto& shared = cuda::SharedMemory<Shared>();
  BetweenThreads(params, shared);
  WithCopies(params);
  __syncthreads();
  InGlobalMemory(params, shared);
}

__global__ void WriteKernel(BuggyParams params) { params.data[threadIdx.x] = 2.0f; }

__global__ void DependentKernel(BuggyParams params) {
  auto* copied = cuda::SharedArray<float4>(0, 64);
  float x = 0;
  if (params.bug == Bug::kReadBeforeWait) x = params.data[threadIdx.x];
  if (params.bug == Bug::kCopyBeforeWait) cuda::CopyAsync16(copied + threadIdx.x, params.data);
  cuda::WaitForPreviousKernel();
  if (params.bug == Bug::kNone) cuda::CopyAsync16(copied + threadIdx.x, params.data);
  __syncthreads();
  params.data[threadIdx.x] = x + params.data[threadIdx.x];
}

}  // namespace

absl::Status RunBuggy(const BuggyParams& params, cudaStream_t stream) {
  cuda::LaunchDims dims;
  dims.grid_x = 2;
  dims.threads = 64;
  dims.shared_bytes = kSharedBytes;
  return cuda::Launch("Buggy", BuggyKernel, dims, params, stream);
}

absl::Status RunDependent(const BuggyParams& params, cudaStream_t stream) {
  cuda::LaunchDims dims;
  dims.threads = 64;
  dims.shared_bytes = kSharedBytes;
  const absl::Status status = cuda::Launch("Write", WriteKernel, dims, params, stream);
  if (!status.ok()) return status;
  dims.dependent = true;
  return cuda::Launch("Dependent", DependentKernel, dims, params, stream);
}

}  // namespace tokend::simt
