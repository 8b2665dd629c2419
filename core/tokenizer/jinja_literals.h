#ifndef TOKEND_CORE_TOKENIZER_JINJA_LITERALS_H_
#define TOKEND_CORE_TOKENIZER_JINJA_LITERALS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tokend::tokenizer {

// The values of the string literals in a Jinja template's {{ }} and {% %} blocks, escapes resolved.
// Ends quietly at whatever is not well-formed.
std::vector<std::string> JinjaStringLiterals(absl::string_view source);

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_JINJA_LITERALS_H_
