// Values as text: Python's str(), repr() and json.dumps().
#ifndef TOKEND_CORE_CHAT_PYTHON_TEXT_H_
#define TOKEND_CORE_CHAT_PYTHON_TEXT_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/chat/text.h"
#include "core/chat/value.h"

namespace tokend::chat {

// Python's repr of a float: the shortest digits that read back the same.
std::string FloatText(double value);

// str(value). What is not from a string or a trusted number (brackets, commas) is not trusted.
// Error: Problem (a namespace that holds itself).
absl::Status AppendStr(const Value& value, TextBuilder* out);
absl::StatusOr<Text> Str(const Value& value);
absl::Status AppendRepr(const Value& value, TextBuilder* out, int depth = 0);

struct JsonOptions {
  bool ensure_ascii = false;
  std::optional<Text> indent;  // absent: all on one line
  Text item_separator;         // ", "; with an indent ","
  Text key_separator;          // ": "
  bool sort_keys = false;
};

// json.dumps. Error: Problem (what JSON has no form for).
absl::Status AppendJson(const Value& value, const JsonOptions& options, TextBuilder* out);

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_PYTHON_TEXT_H_
