#ifndef TOKEND_TESTS_BENCH_CHILD_PROCESS_H_
#define TOKEND_TESTS_BENCH_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tokend::bench {

// A program that is talked to by lines on its stdin and stdout. Ended with
// SIGTERM, and waited for, by the destructor.
class ChildProcess {
 public:
  // argv[0] is looked up in PATH.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& argv);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void WriteLine(const std::string& line);
  // Without its end; UNAVAILABLE when the program has closed its stdout.
  absl::StatusOr<std::string> ReadLine();
  pid_t pid() const { return pid_; }

 private:
  ChildProcess() = default;

  pid_t pid_ = -1;
  FILE* in_ = nullptr;   // its stdin
  FILE* out_ = nullptr;  // its stdout
};

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_CHILD_PROCESS_H_
