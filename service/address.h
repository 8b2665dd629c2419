#ifndef TOKEND_SERVICE_ADDRESS_H_
#define TOKEND_SERVICE_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tokend::service {

// Where to listen: "HOST:PORT" ("[::1]:0" too) or "unix:PATH".
struct Address {
  std::string host;  // without brackets; empty: a unix socket
  int port = 0;      // 0: the system picks
  std::string path;  // of the unix socket, at most kMaxUnixPathBytes

  bool is_unix() const { return host.empty(); }
  // "localhost", 127.0.0.0/8, ::1.
  bool is_loopback() const;
  // As above; also what gRPC takes.
  std::string ToString() const;
};

// INVALID_ARGUMENT: what is wrong with it, without the setting's name.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_ADDRESS_H_
