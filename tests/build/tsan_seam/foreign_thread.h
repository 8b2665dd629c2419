// Stands for gRPC in the tests of the ThreadSanitizer seam: runs our code on a
// thread that the sanitizer's build does not see being managed.
#ifndef TOKEND_TESTS_BUILD_TSAN_SEAM_FOREIGN_THREAD_H_
#define TOKEND_TESTS_BUILD_TSAN_SEAM_FOREIGN_THREAD_H_

#include <functional>

namespace tokend::tests {

// Runs `work` at the same time on two threads and returns when both are done.
void RunOnTwoForeignThreads(const std::function<void()>& work);

}  // namespace tokend::tests

#endif  // TOKEND_TESTS_BUILD_TSAN_SEAM_FOREIGN_THREAD_H_
