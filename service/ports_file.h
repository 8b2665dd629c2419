#ifndef TOKEND_SERVICE_PORTS_FILE_H_
#define TOKEND_SERVICE_PORTS_FILE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "service/address.h"

namespace tokend::service {

// Lines "grpc=ADDR" and "metrics=ADDR" under a temporary name, renamed into place:
// a reader sees all of it or nothing.
absl::Status WritePortsFile(const std::string& path, absl::Span<const Address> grpc,
                            const std::optional<Address>& metrics);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_PORTS_FILE_H_
