// The tokens inside a tag.
#ifndef TOKEND_CORE_CHAT_TOKEN_SCANNER_H_
#define TOKEND_CORE_CHAT_TOKEN_SCANNER_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/chat/lexer.h"

namespace tokend::chat {

// Reads the name, number, string or operator that `source` begins with, which is not white space,
// into type and value of `token`; `size` is how many bytes it takes. Error: Problem.
absl::Status ScanToken(absl::string_view source, Token* token, size_t* size);

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_TOKEN_SCANNER_H_
