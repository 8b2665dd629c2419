#include "service/unix_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tokend::service {
namespace {

constexpr mode_t kFolderMode = 0750;
constexpr mode_t kSocketMode = 0660;

absl::Status Failed(const std::string& path, const char* action) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", action, " ", path, ": ", std::strerror(errno)));
}

absl::Status MakeFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return absl::OkStatus();
  const std::string folder = path.substr(0, slash);
  if (mkdir(folder.c_str(), kFolderMode) == 0 || errno == EEXIST) return absl::OkStatus();
  return Failed(folder, "make the folder");
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketLock>> SocketLock::Acquire(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on unix:", path, ": it is there and is no socket"));
  }
  TOKEND_RETURN_IF_ERROR(MakeFolder(path));
  const std::string lock = path + ".lock";
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Failed(lock, "open");
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const bool taken = errno == EWOULDBLOCK;
    const absl::Status failed = Failed(lock, "lock");
    close(fd);
    if (!taken) return failed;
    return absl::UnavailableError(absl::StrCat("another process serves unix:", path));
  }
  return std::unique_ptr<SocketLock>(new SocketLock(path, fd));
}

SocketLock::~SocketLock() { close(fd_); }

absl::Status SocketLock::SetMode() const {
  if (chmod(path_.c_str(), kSocketMode) == 0) return absl::OkStatus();
  return Failed(path_, "set the mode of");
}

}  // namespace tokend::service
