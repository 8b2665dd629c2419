// First include of every kernel file. Kernels are written in CUDA's own language
// and compiled twice: by nvcc for the GPU, and by a host compiler against
// tests/simt/, which the build includes before everything else and which stands in
// for what nvcc knows by itself (threadIdx, __syncthreads, shuffles, atomics ...).
//
// What both sides understand:
// - a kernel takes one struct of parameters by value and returns nothing;
// - shared memory comes from shared_memory.cuh, never from __shared__;
// - tensor-core products and asynchronous copies come from mma.cuh and
//   cp_async.cuh; a shuffle names all lanes of its mask;
// - a fused multiply-add is written fmaf: nothing else is contracted.
#ifndef TOKEND_CUDA_KERNELS_DEVICE_PLATFORM_CUH_
#define TOKEND_CUDA_KERNELS_DEVICE_PLATFORM_CUH_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

// For functions that kernels call. Hosts need not inline them all, which would take
// them minutes.
#ifdef TOKEND_SIMT
#define TOKEND_DEVICE inline
#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif
#else
#define TOKEND_DEVICE __device__ __forceinline__
#endif

// As a function's only or last parameter: where it was called, for the stand-in's reports.
#ifdef TOKEND_SIMT
#define TOKEND_CALL_SITE TOKEND_SIMT_SITE
#define TOKEND_AND_CALL_SITE , TOKEND_SIMT_SITE
#else
#define TOKEND_CALL_SITE
#define TOKEND_AND_CALL_SITE
#endif

namespace tokend::cuda {

inline constexpr int kWarpLanes = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

TOKEND_DEVICE int Lane() { return static_cast<int>(threadIdx.x) % kWarpLanes; }
TOKEND_DEVICE int Warp() { return static_cast<int>(threadIdx.x) / kWarpLanes; }

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_DEVICE_PLATFORM_CUH_
