// Resource names and ids on the wire.
#ifndef TOKEND_SERVICE_NAMES_H_
#define TOKEND_SERVICE_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tokend::service {

// 1 to 63 of [A-Za-z0-9._-], a letter or digit first.
bool IsSessionId(absl::string_view id);
// 1 to 64 of [A-Za-z0-9._-].
bool IsRequestId(absl::string_view id);

struct SessionName {
  std::string id;
  std::optional<int64_t> version;  // absent: the session itself
};

// "sessions/{session}" or "sessions/{session}/versions/{n}", n in [1, 2^63).
std::optional<SessionName> ParseSessionName(absl::string_view name);

std::string SessionResource(absl::string_view id);
std::string VersionResource(absl::string_view id, int64_t version);

// A file's name as a model id: without folders and ".gguf", other characters than
// [A-Za-z0-9._-] as '-'.
std::string ModelId(absl::string_view path);

// A random (version 4) UUID.
std::string RandomUuid();

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_NAMES_H_
