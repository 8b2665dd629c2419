// What clang's -fsanitize=thread calls for each access of a kernel. Nothing of the
// sanitizer's own runtime is linked.
#include <cstddef>
#include <cstring>

#include "tests/simt/shadow.h"

using tokend::simt::Access;
using tokend::simt::Shadow;

#define TOKEND_SIMT_ACCESS(name, access, bytes)                                  \
  void name(void* address) {                                                     \
    Shadow::Get().OnAccess(access, address, bytes, __builtin_return_address(0)); \
  }

extern "C" {

void __tsan_init() {}

TOKEND_SIMT_ACCESS(__tsan_read1, Access::kRead, 1)
TOKEND_SIMT_ACCESS(__tsan_read2, Access::kRead, 2)
TOKEND_SIMT_ACCESS(__tsan_read4, Access::kRead, 4)
TOKEND_SIMT_ACCESS(__tsan_read8, Access::kRead, 8)
TOKEND_SIMT_ACCESS(__tsan_read16, Access::kRead, 16)
TOKEND_SIMT_ACCESS(__tsan_unaligned_read2, Access::kRead, 2)
TOKEND_SIMT_ACCESS(__tsan_unaligned_read4, Access::kRead, 4)
TOKEND_SIMT_ACCESS(__tsan_unaligned_read8, Access::kRead, 8)
TOKEND_SIMT_ACCESS(__tsan_unaligned_read16, Access::kRead, 16)
TOKEND_SIMT_ACCESS(__tsan_write1, Access::kWrite, 1)
TOKEND_SIMT_ACCESS(__tsan_write2, Access::kWrite, 2)
TOKEND_SIMT_ACCESS(__tsan_write4, Access::kWrite, 4)
TOKEND_SIMT_ACCESS(__tsan_write8, Access::kWrite, 8)
TOKEND_SIMT_ACCESS(__tsan_write16, Access::kWrite, 16)
TOKEND_SIMT_ACCESS(__tsan_unaligned_write2, Access::kWrite, 2)
TOKEND_SIMT_ACCESS(__tsan_unaligned_write4, Access::kWrite, 4)
TOKEND_SIMT_ACCESS(__tsan_unaligned_write8, Access::kWrite, 8)
TOKEND_SIMT_ACCESS(__tsan_unaligned_write16, Access::kWrite, 16)

void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  Shadow::Get().OnAccess(Access::kRead, from, bytes, __builtin_return_address(0));
  Shadow::Get().OnAccess(Access::kWrite, to, bytes, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}

void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  Shadow::Get().OnAccess(Access::kRead, from, bytes, __builtin_return_address(0));
  Shadow::Get().OnAccess(Access::kWrite, to, bytes, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}

void* __tsan_memset(void* to, int value, size_t bytes) {
  Shadow::Get().OnAccess(Access::kWrite, to, bytes, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}

}  // extern "C"
