#include "service/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>

#include "core/base/check.h"

namespace tokend::service {
namespace {

sigset_t OurSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

int MakeSignalFd() {
  const sigset_t set = OurSignals();
  return signalfd(-1, &set, SFD_CLOEXEC);
}

}  // namespace

void Signals::Block() {
  const sigset_t set = OurSignals();
  TOKEND_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  // A write to a closed connection is an error there, not the process's end.
  TOKEND_CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
}

Signals::Signals() : signal_fd_(MakeSignalFd()), wake_fd_(eventfd(0, EFD_CLOEXEC)) {
  TOKEND_CHECK(signal_fd_ >= 0 && wake_fd_ >= 0);
}

Signals::~Signals() {
  close(signal_fd_);
  close(wake_fd_);
}

Signals::Event Signals::Wait() {
  while (true) {
    pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;  // EINTR
    signalfd_siginfo info;
    if ((fds[0].revents & POLLIN) != 0 && read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
      return info.ssi_signo == SIGHUP ? Event::kReload : Event::kStop;
    }
    uint64_t count = 0;
    if ((fds[1].revents & POLLIN) != 0 && read(wake_fd_, &count, sizeof(count)) == sizeof(count)) {
      return Event::kWake;
    }
  }
}

void Signals::Wake() {
  const uint64_t one = 1;
  TOKEND_CHECK(write(wake_fd_, &one, sizeof(one)) == sizeof(one));
}

}  // namespace tokend::service
