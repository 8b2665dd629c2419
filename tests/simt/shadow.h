// Who wrote and read each byte of shared and device memory, so that unordered
// accesses, reads of what nobody wrote and accesses outside are found. Only in
// tokend_cuda_shadow, whose kernels tell every access; else nothing. Internal.
#ifndef TOKEND_TESTS_SIMT_SHADOW_H_
#define TOKEND_TESTS_SIMT_SHADOW_H_

#include <cstddef>
#include <cstdint>

#include "tests/simt/simt.h"

namespace tokend::simt {

#ifdef TOKEND_SIMT_SHADOW

enum class Access { kRead, kWrite, kAtomic };

class Shadow {
 public:
  static Shadow& Get();

  // ---- From the machine ----
  void BeginLaunch(unsigned blocks);
  void BeginBlock(unsigned linear_block);
  void SharedRegion(size_t byte_offset, size_t bytes);
  void BlockBarrier();
  void WarpBarrier(unsigned mask);  // of the running thread's warp
  // `global` null: zeros. The bytes at `shared` are nobody's until it has landed.
  void CopyIssued(const void* shared, const void* global, Site site);
  void CopyLanded(const void* shared);

  // ---- From kernels ----
  // `pc` is in the caller, after the access.
  void OnAccess(Access access, const void* address, size_t bytes, const void* pc);
  void Fence();  // __threadfence()

  // ---- From the fake runtime ----
  // What kernels wrote before is no kernel's business any more.
  void HostWaited();
  // Device memory with room for guards, or null.
  void* Allocate(size_t bytes);
  void Free(void* address);

 private:
  Shadow();
  struct State;
  State* const state_;
};

#else

class Shadow {
 public:
  static Shadow Get() { return {}; }
  void BeginLaunch(unsigned) {}
  void BeginBlock(unsigned) {}
  void SharedRegion(size_t, size_t) {}
  void BlockBarrier() {}
  void WarpBarrier(unsigned) {}
  void CopyIssued(const void*, const void*, Site) {}
  void CopyLanded(const void*) {}
  void Fence() {}
  void HostWaited() {}
};

#endif

}  // namespace tokend::simt

#endif  // TOKEND_TESTS_SIMT_SHADOW_H_
