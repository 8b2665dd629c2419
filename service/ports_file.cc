#include "service/ports_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace tokend::service {

absl::Status WritePortsFile(const std::string& path, absl::Span<const Address> grpc,
                            const std::optional<Address>& metrics) {
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary, std::ios::trunc);
  for (const Address& address : grpc) file << "grpc=" << address.ToString() << "\n";
  if (metrics.has_value()) file << "metrics=" << metrics->ToString() << "\n";
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot write the ports file ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace tokend::service
