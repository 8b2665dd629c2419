// A kernel of a dependent launch starts while the one before it still runs.
#ifndef TOKEND_CUDA_KERNELS_DEVICE_DEPENDENT_LAUNCH_CUH_
#define TOKEND_CUDA_KERNELS_DEVICE_DEPENDENT_LAUNCH_CUH_

#include "cuda_kernels/device/platform.cuh"

namespace tokend::cuda {

// Before it a thread touches weights alone, by CopyAsync16 or PrefetchL2: all else
// may still be written by the kernel before. Every thread calls it before it exits.
// Nothing where the kernel was launched plainly, or on a part without (below 9.0).
TOKEND_DEVICE void WaitForPreviousKernel() {
#ifdef TOKEND_SIMT
  simt::WaitForPreviousKernel();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel's blocks start as soon as there is room for them.
TOKEND_DEVICE void AllowNextKernel() {
#if !defined(TOKEND_SIMT) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_DEVICE_DEPENDENT_LAUNCH_CUH_
