#ifndef TOKEND_CUDA_KERNELS_DEVICE_SHARED_MEMORY_CUH_
#define TOKEND_CUDA_KERNELS_DEVICE_SHARED_MEMORY_CUH_

#include <cstddef>

#include "cuda_kernels/device/platform.cuh"

namespace tokend::cuda {

#ifdef TOKEND_SIMT

// The block's dynamic shared memory from `byte_offset` on, as a T. `bytes` is what
// the caller may reach from there.
template <typename T>
T* SharedAt(size_t byte_offset, size_t bytes) {
  return static_cast<T*>(simt::SharedMemoryAt(byte_offset, bytes));
}

#else

template <typename T>
TOKEND_DEVICE T* SharedAt(size_t byte_offset, size_t /*bytes*/) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  return reinterpret_cast<T*>(shared_memory + byte_offset);
}

#endif

// A fixed struct at the start of shared memory.
template <typename T>
TOKEND_DEVICE T& SharedMemory() {
  return *SharedAt<T>(0, sizeof(T));
}

// `count` elements from `byte_offset` on, a multiple of 16.
template <typename T>
TOKEND_DEVICE T* SharedArray(size_t byte_offset, int count) {
  return SharedAt<T>(byte_offset, static_cast<size_t>(count) * sizeof(T));
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_DEVICE_SHARED_MEMORY_CUH_
