// Failures of chat templates.
#ifndef TOKEND_CORE_CHAT_ERRORS_H_
#define TOKEND_CORE_CHAT_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tokend::chat {

// A place in a template's source, both from 1; columns count code points. Line 0: nowhere.
struct Position {
  int line = 0;
  int column = 0;
};

// FAILED_PRECONDITION, kTemplateFailed, metadata "line" and "column". What is longer than 256
// bytes of `problem` is cut off.
absl::Status TemplateFailed(Position at, absl::string_view problem);

// The same without a place, which the evaluator knows and adds.
absl::Status Problem(absl::string_view problem);

// `status` with the place added if it has none.
absl::Status WithPosition(const absl::Status& status, Position at);

// INVALID_ARGUMENT, INVALID_FIELD: `field` is no JSON, or more than can be held.
absl::Status BadJson(absl::string_view field, absl::string_view problem);

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_ERRORS_H_
