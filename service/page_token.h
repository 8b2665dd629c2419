#ifndef TOKEND_SERVICE_PAGE_TOKEN_H_
#define TOKEND_SERVICE_PAGE_TOKEN_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tokend::service {

// An opaque place in a list. `list` says which list and how it is paged ("sessions
// by 100"): a token serves that alone.
std::string MakePageToken(absl::string_view list, absl::string_view place);

// The place; absent: not a token of this list.
std::optional<std::string> ReadPageToken(absl::string_view list, absl::string_view token);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_PAGE_TOKEN_H_
