#ifndef TOKEND_CORE_BASE_READ_FILE_H_
#define TOKEND_CORE_BASE_READ_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace tokend::base {

// All of a regular file or a pipe. INVALID_ARGUMENT, whose message names `path`: it
// cannot be opened or read, is something else (a folder, a device), or holds more
// than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t max_bytes);

// The rest of what `fd` gives, whatever it is; `name` is for messages.
absl::StatusOr<std::string> ReadToEnd(int fd, const std::string& name, size_t max_bytes);

}  // namespace tokend::base

#endif  // TOKEND_CORE_BASE_READ_FILE_H_
