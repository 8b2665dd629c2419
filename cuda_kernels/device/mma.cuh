// Tensor-core products of one warp: PTX and, for the stand-in, the same on a host.
#ifndef TOKEND_CUDA_KERNELS_DEVICE_MMA_CUH_
#define TOKEND_CUDA_KERNELS_DEVICE_MMA_CUH_

#include "cuda_kernels/device/platform.cuh"

namespace tokend::cuda {

// D += A B with A [16, 16] and B [16, 8] in f16, D [16, 8] in f32. All 32 lanes call
// it. With g = lane / 4 and t = lane % 4 a lane holds
//   a[0] = A[g][2t, 2t+1]      a[1] = A[g+8][2t, 2t+1]
//   a[2] = A[g][2t+8, 2t+9]    a[3] = A[g+8][2t+8, 2t+9]
//   b[0] = B[2t, 2t+1][g]      b[1] = B[2t+8, 2t+9][g]
//   d[0], d[1] = D[g][2t, 2t+1]          d[2], d[3] = D[g+8][2t, 2t+1]
// the lower index in the lower half of a register (PTX ISA, mma.m16n8k16).
// D[i][j] depends on row i of A, column j of B and D[i][j] alone.
TOKEND_DEVICE void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef TOKEND_SIMT
  simt::MmaF16(d, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_DEVICE_MMA_CUH_
