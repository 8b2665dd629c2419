#ifndef TOKEND_CORE_CHAT_JSON_H_
#define TOKEND_CORE_CHAT_JSON_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/chat/value.h"

namespace tokend::chat {

// JSON text as a value: objects keep their order, integers stay integers, and nothing in it is
// trusted. `field` is what an error calls the text. Errors: INVALID_ARGUMENT, INVALID_FIELD (no
// JSON, an integer beyond 64 bits, more than kMaxNesting deep).
absl::StatusOr<Value> ParseJson(absl::string_view text, absl::string_view field);

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_JSON_H_
