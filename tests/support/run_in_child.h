#ifndef TOKEND_TESTS_SUPPORT_RUN_IN_CHILD_H_
#define TOKEND_TESTS_SUPPORT_RUN_IN_CHILD_H_

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace tokend::testing {

// Runs `work` in a process of its own, so that a crash is an outcome like any
// other; `quiet`: without what that prints. `report` gets what the work left in
// its copy. Empty, or how the process died, a sanitizer's find at its end included.
// Threads other than the caller's do not exist there.
template <typename Report>
std::string RunInChild(const std::function<void(Report*)>& work, bool quiet, Report* report) {
  static_assert(std::is_trivially_destructible_v<Report>);
  void* const memory =
      mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TOKEND_CHECK(memory != MAP_FAILED);
  auto* const shared = new (memory) Report(*report);
  std::fflush(nullptr);
  const pid_t child = fork();
  TOKEND_CHECK(child >= 0);
  if (child == 0) {
    if (quiet) TOKEND_CHECK(std::freopen("/dev/null", "w", stderr) != nullptr);
    work(shared);
    std::exit(0);  // not _exit: what a sanitizer finds at the end counts
  }
  int status = 0;
  TOKEND_CHECK(waitpid(child, &status, 0) == child);
  *report = *shared;
  munmap(memory, sizeof(Report));
  if (WIFSIGNALED(status)) return absl::StrCat("died of signal ", WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : absl::StrCat("exit code ", WEXITSTATUS(status));
}

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_RUN_IN_CHILD_H_
