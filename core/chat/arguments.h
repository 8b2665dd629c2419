#ifndef TOKEND_CORE_CHAT_ARGUMENTS_H_
#define TOKEND_CORE_CHAT_ARGUMENTS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/chat/value.h"

namespace tokend::chat {

// Of a call, filter or test.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments by parameter, nullptr for those not given. They point into `arguments`. Error:
// Problem (too many, too few, unknown, given twice), which calls the callee `what`.
absl::StatusOr<std::vector<const Value*>> Bind(absl::string_view what, const Arguments& arguments,
                                               std::initializer_list<absl::string_view> parameters,
                                               size_t required = 0);

// Errors: Problem (of another type). nullptr and None give the fallback.
absl::StatusOr<int64_t> IntegerOr(const Value* value, int64_t fallback);
absl::StatusOr<Text> StringOf(const Value& value);
bool TruthOr(const Value* value, bool fallback);

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_ARGUMENTS_H_
