#ifndef TOKEND_CORE_CHAT_CHECK_NAMES_H_
#define TOKEND_CORE_CHAT_CHECK_NAMES_H_

#include <vector>

#include "absl/status/status.h"
#include "core/chat/ast.h"

namespace tokend::chat {

// Jinja refuses a filter or test that it does not know when it compiles the template, but for those
// directly inside an `if`, which fail only if they are reached.
absl::Status CheckNames(const std::vector<NodePtr>& statements);

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_CHECK_NAMES_H_
