// Counts what goes through operator new in programs that link this.
#ifndef TOKEND_TESTS_SUPPORT_ALLOCATIONS_H_
#define TOKEND_TESTS_SUPPORT_ALLOCATIONS_H_

#include <cstddef>
#include <cstdint>

namespace tokend::testing {

struct Allocations {
  int64_t count = 0;
  size_t bytes = 0;
};

// So far, by all threads.
Allocations AllAllocations();

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_ALLOCATIONS_H_
