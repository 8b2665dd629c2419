#include "service/ports_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace tokend::service {
namespace {

absl::Status Failed(const std::string& path, absl::string_view problem) {
  return absl::UnavailableError(absl::StrCat("cannot write the ports file ", path, ": ", problem));
}

}  // namespace

absl::Status WritePortsFile(const std::string& path, absl::Span<const Address> grpc,
                            const std::optional<Address>& metrics) {
  // It would be replaced by a file.
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Failed(path, "it is there and is no regular file");
  }
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary, std::ios::trunc);
  for (const Address& address : grpc) file << "grpc=" << address.ToString() << "\n";
  if (metrics.has_value()) file << "metrics=" << metrics->ToString() << "\n";
  file.close();
  if (file && std::rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  unlink(temporary.c_str());
  return Failed(path, std::strerror(error));
}

}  // namespace tokend::service
