#ifndef TOKEND_SERVICE_UNIX_SOCKET_H_
#define TOKEND_SERVICE_UNIX_SOCKET_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tokend::service {

// The right to serve a unix socket. Without it a second daemon takes the path from
// the first: binding unlinks what is there.
class SocketLock {
 public:
  // Makes the socket's folder (0750) if it is missing and locks PATH.lock.
  // UNAVAILABLE if another process has it.
  static absl::StatusOr<std::unique_ptr<SocketLock>> Acquire(const std::string& path);

  // The lock file stays: removing it would let two processes lock two files of one
  // name.
  ~SocketLock();
  SocketLock(const SocketLock&) = delete;
  SocketLock& operator=(const SocketLock&) = delete;

  // Lets owner and group connect, nobody else. Once it is bound.
  absl::Status SetMode() const;

 private:
  SocketLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_UNIX_SOCKET_H_
