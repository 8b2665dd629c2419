#include "tests/build/tsan_seam/foreign_thread.h"

#include <thread>

namespace tokend::tests {

void RunOnTwoForeignThreads(const std::function<void()>& work) {
  std::thread first(work);
  std::thread second(work);
  first.join();
  second.join();
}

}  // namespace tokend::tests
