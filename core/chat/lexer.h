#ifndef TOKEND_CORE_CHAT_LEXER_H_
#define TOKEND_CORE_CHAT_LEXER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/chat/errors.h"

namespace tokend::chat {

struct Token {
  enum class Type {
    kData,  // text between the tags
    kBlockBegin,
    kBlockEnd,
    kOutputBegin,
    kOutputEnd,
    kName,
    kString,  // its value
    kInt,
    kFloat,
    kOperator,
    kEnd,  // of the source
  };

  Type type = Type::kEnd;
  Position at;
  std::string text;
  int64_t integer = 0;
  double floating = 0;

  bool Is(Type other) const { return type == other; }
  bool IsOperator(absl::string_view op) const { return type == Type::kOperator && text == op; }
  bool IsName(absl::string_view name) const { return type == Type::kName && text == name; }
};

// A template's source as tokens, its white space already controlled as Jinja does with trim_blocks
// and lstrip_blocks; the last token is kEnd. Comments are left out and {% raw %} is data. Error:
// FAILED_PRECONDITION, kTemplateFailed.
absl::StatusOr<std::vector<Token>> Tokenise(absl::string_view source);

// The source with \r\n and \r as \n, and without the last of its newlines.
std::string NormalisedSource(absl::string_view source);

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_LEXER_H_
