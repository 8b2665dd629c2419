#ifndef TOKEND_SERVICE_TLS_FILES_H_
#define TOKEND_SERVICE_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"

namespace tokend::service {

struct TlsFiles {
  std::string certificates;  // PEM: the server's certificate, then its chain
  std::string key;           // PEM, not encrypted
};

// Reads and checks both, since gRPC only says that it cannot listen. INVALID_ARGUMENT
// naming the setting: a file cannot be read, holds no such thing, is refused by
// OpenSSL's security level, or the key is not the certificate's.
absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& cert_file, const std::string& key_file);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_TLS_FILES_H_
