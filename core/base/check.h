// TOKEND_CHECK: for broken invariants of our own code only. Never for input, a
// model file, memory exhaustion or a device error: those are an absl::Status.
#ifndef TOKEND_CORE_BASE_CHECK_H_
#define TOKEND_CORE_BASE_CHECK_H_

namespace tokend::base {

// Prints file, line and condition to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace tokend::base

#define TOKEND_CHECK(condition)                      \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::tokend::base::CheckFailed(__FILE__, __LINE__, #condition))

#endif  // TOKEND_CORE_BASE_CHECK_H_
