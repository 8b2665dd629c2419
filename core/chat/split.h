// Python's ways to cut a string.
#ifndef TOKEND_CORE_CHAT_SPLIT_H_
#define TOKEND_CORE_CHAT_SPLIT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/chat/arguments.h"
#include "core/chat/text.h"
#include "core/chat/value.h"

namespace tokend::chat {

// str.splitlines; with `keep_ends` each line has its end.
std::vector<Text> SplitLines(const Text& text, bool keep_ends);

// `name`: split or rsplit.
absl::StatusOr<Value> SplitMethod(const Text& self, absl::string_view name,
                                  const Arguments& arguments);
absl::StatusOr<Value> SplitLinesMethod(const Text& self, absl::string_view name,
                                       const Arguments& arguments);
// `name`: partition or rpartition.
absl::StatusOr<Value> PartitionMethod(const Text& self, absl::string_view name,
                                      const Arguments& arguments);

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_SPLIT_H_
