#include "tests/support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

// GCC takes the malloc and free behind these operators for a mismatch.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace {
std::atomic<int64_t> g_count = 0;
std::atomic<size_t> g_bytes = 0;
}  // namespace

void* operator new(size_t size) {
  ++g_count;
  g_bytes += size;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tokend::testing {

Allocations AllAllocations() { return {g_count, g_bytes}; }

}  // namespace tokend::testing
