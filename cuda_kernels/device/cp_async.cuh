// Copies from global to shared memory that run while the thread goes on.
#ifndef TOKEND_CUDA_KERNELS_DEVICE_CP_ASYNC_CUH_
#define TOKEND_CUDA_KERNELS_DEVICE_CP_ASYNC_CUH_

#include "cuda_kernels/device/platform.cuh"

namespace tokend::cuda {

// 16 bytes, both addresses multiples of 16; `valid` false: 16 zeros, and `global`
// is not read. Bypasses L1.
TOKEND_DEVICE void CopyAsync16(void* shared, const void* global,
                               bool valid = true TOKEND_AND_CALL_SITE) {
#ifdef TOKEND_SIMT
  simt::CopyAsync16(shared, global, valid, site);
#else
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
               : "memory");
#endif
}

// Where this thread's copies go. The compiler, left to itself, works out a shared
// address anew before each copy.
class CopyTarget {
 public:
  TOKEND_DEVICE explicit CopyTarget(unsigned char* shared) {
#ifdef TOKEND_SIMT
    address_ = shared;
#else
    address_ = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("" : "+r"(address_));
#endif
  }

  // As above, `offset` bytes behind the target.
  TOKEND_DEVICE void Copy16(int offset, const void* global,
                            bool valid = true TOKEND_AND_CALL_SITE) const {
#ifdef TOKEND_SIMT
    simt::CopyAsync16(address_ + offset, global, valid, site);
#else
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address_ + offset),
                 "l"(global), "r"(bytes)
                 : "memory");
#endif
  }

 private:
#ifdef TOKEND_SIMT
  unsigned char* address_;
#else
  unsigned address_;
#endif
};

// Closes the calling thread's group of copies.
TOKEND_DEVICE void CommitCopies() {
#ifdef TOKEND_SIMT
  simt::CommitCopies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most `kPending` of the calling thread's newest groups are under
// way. Others see what it copied after a barrier.
template <int kPending>
TOKEND_DEVICE void WaitForCopies(TOKEND_CALL_SITE) {
#ifdef TOKEND_SIMT
  simt::WaitForCopies(kPending, site);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// A hint: the line of `global` will be read soon.
TOKEND_DEVICE void PrefetchL2(const void* global) {
#ifdef TOKEND_SIMT
  (void)global;
#else
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
#endif
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_DEVICE_CP_ASYNC_CUH_
