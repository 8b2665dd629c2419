#include "core/base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tokend::base {
namespace {

constexpr size_t kChunkBytes = 64 << 10;

absl::Status CannotRead(const std::string& name, const char* problem) {
  return absl::InvalidArgumentError(absl::StrCat("cannot read ", name, ": ", problem));
}

}  // namespace

absl::StatusOr<std::string> ReadToEnd(int fd, const std::string& name, size_t max_bytes) {
  std::string out;
  size_t used = 0;
  while (true) {
    // One byte beyond the bound tells that there is more.
    out.resize(std::min(used + kChunkBytes, max_bytes + 1));
    const ssize_t got = ::read(fd, out.data() + used, out.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return CannotRead(name, std::strerror(errno));
    used += static_cast<size_t>(got);
    if (used > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " holds more than ", max_bytes, " bytes"));
    }
    if (got == 0) {
      out.resize(used);
      return out;
    }
  }
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t max_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CannotRead(path, std::strerror(errno));
  struct stat info = {};
  absl::StatusOr<std::string> out = CannotRead(path, "not a regular file or a pipe");
  if (::fstat(fd, &info) != 0) {
    out = CannotRead(path, std::strerror(errno));
  } else if (S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode)) {
    out = ReadToEnd(fd, path, max_bytes);
  }
  ::close(fd);
  return out;
}

}  // namespace tokend::base
