// Stackful fibers, switched in some ten instructions.
#ifndef TOKEND_TESTS_SIMT_FIBER_H_
#define TOKEND_TESTS_SIMT_FIBER_H_

#include <cstddef>

#include "tests/simt/sanitizer.h"

// Pushes what the callee must keep, stores the stack pointer in *rdi (x0), takes
// rsi (x1) as the new one, pops and returns.
extern "C" void tokend_simt_switch(void** save, void* load);

namespace tokend::simt {

// One flow of control. The default one is the thread's own, and is filled in by the
// first switch away from it.
class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch to this fiber enters `entry`, which never returns. What ran on
  // its stack is forgotten.
  void Reset(void (*entry)());

  // Leaves `from`, which must be the one running, for `to`.
  static void Switch(Fiber& from, Fiber& to) {
#ifdef TOKEND_SIMT_ASAN
    __sanitizer_start_switch_fiber(&from.sanitizer_stack_, to.bottom_, to.bytes_);
#endif
    tokend_simt_switch(&from.stack_pointer_, to.stack_pointer_);
#ifdef TOKEND_SIMT_ASAN
    __sanitizer_finish_switch_fiber(from.sanitizer_stack_, nullptr, nullptr);
#endif
  }

  // First statement of every `entry`; `from` is the fiber that switched here.
  static void Entered(Fiber& from);

 private:
  void* stack_pointer_ = nullptr;
  void* mapping_ = nullptr;       // a guard page, and the stack above it
  const void* bottom_ = nullptr;  // of the stack, for AddressSanitizer
  size_t bytes_ = 0;              // likewise
  size_t colour_ = 0;             // bytes left free at the stack's top
  void* sanitizer_stack_ = nullptr;
};

}  // namespace tokend::simt

#endif  // TOKEND_TESTS_SIMT_FIBER_H_
