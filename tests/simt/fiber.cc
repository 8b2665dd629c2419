#include "tests/simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "core/base/check.h"

#if defined(__x86_64__)
// A jump, as the processor predicts a return by the calls of the fiber that it leaves.
asm(R"(
  .text
  .globl tokend_simt_switch
  .type tokend_simt_switch, @function
tokend_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
  .size tokend_simt_switch, .-tokend_simt_switch
)");
constexpr size_t kSavedWords = 6;
#elif defined(__aarch64__)
asm(R"(
  .text
  .globl tokend_simt_switch
  .type tokend_simt_switch, %function
tokend_simt_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size tokend_simt_switch, .-tokend_simt_switch
)");
#else
#error "the switch is written for x86-64 and arm64"
#endif

namespace tokend::simt {
namespace {

#ifdef TOKEND_SIMT_ASAN
constexpr size_t kStackBytes = 256 * 1024;
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif

size_t GuardBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Stacks at the same distance from a page's end would fight for the same few cache
// sets: each starts some lines below the one before.
size_t NextColour() {
  static size_t count = 0;
  return count++ * 5 % 64 * 64;
}

}  // namespace

Fiber::~Fiber() {
  if (mapping_ != nullptr) munmap(mapping_, GuardBytes() + kStackBytes);
}

void Fiber::Reset(void (*entry)()) {
  if (mapping_ == nullptr) {
    mapping_ = mmap(nullptr, GuardBytes() + kStackBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TOKEND_CHECK(mapping_ != MAP_FAILED);
    TOKEND_CHECK(mprotect(mapping_, GuardBytes(), PROT_NONE) == 0);
    bottom_ = static_cast<char*>(mapping_) + GuardBytes();
    bytes_ = kStackBytes;
    colour_ = NextColour();
  }
#ifdef TOKEND_SIMT_ASAN
  __asan_unpoison_memory_region(bottom_, bytes_);
#endif
  sanitizer_stack_ = nullptr;
  auto* top =
      reinterpret_cast<uintptr_t*>(static_cast<char*>(mapping_) + GuardBytes() + bytes_ - colour_);
#if defined(__x86_64__)
  // The saved registers, the address that `ret` takes, and the return address of
  // `entry`, which leaves its stack aligned as after a call.
  uintptr_t* frame = top - kSavedWords - 2;
  std::memset(frame, 0, (kSavedWords + 2) * sizeof(uintptr_t));
  frame[kSavedWords] = reinterpret_cast<uintptr_t>(entry);
#else
  uintptr_t* frame = top - 20;
  std::memset(frame, 0, 20 * sizeof(uintptr_t));
  frame[11] = reinterpret_cast<uintptr_t>(entry);  // x30
#endif
  stack_pointer_ = frame;
}

void Fiber::Entered([[maybe_unused]] Fiber& from) {
#ifdef TOKEND_SIMT_ASAN
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  from.bottom_ = bottom;
  from.bytes_ = bytes;
#endif
}

}  // namespace tokend::simt
