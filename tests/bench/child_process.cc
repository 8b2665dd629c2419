#include "tests/bench/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace tokend::bench {

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::vector<std::string>& argv) {
  int to_child[2];
  int from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  if (pipe2(from_child, O_CLOEXEC) != 0) {
    const int error = errno;
    close(to_child[0]);
    close(to_child[1]);
    return absl::ErrnoToStatus(error, "pipe");
  }
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  auto child = std::unique_ptr<ChildProcess>(new ChildProcess);
  const int error =
      posix_spawnp(&child->pid_, argv[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to_child[0]);
  close(from_child[1]);
  child->in_ = fdopen(to_child[1], "w");
  child->out_ = fdopen(from_child[0], "r");
  if (error != 0) {
    child->pid_ = -1;
    return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", argv[0]));
  }
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  if (in_ != nullptr) fclose(in_);
  if (out_ != nullptr) fclose(out_);
}

void ChildProcess::WriteLine(const std::string& line) {
  std::fprintf(in_, "%s\n", line.c_str());
  std::fflush(in_);
}

absl::StatusOr<std::string> ChildProcess::ReadLine() {
  std::string line;
  for (int c = std::fgetc(out_); c != '\n'; c = std::fgetc(out_)) {
    if (c == EOF) return absl::UnavailableError("the program has ended");
    line.push_back(static_cast<char>(c));
  }
  return line;
}

}  // namespace tokend::bench
