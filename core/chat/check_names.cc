#include "core/chat/check_names.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/functions.h"

namespace tokend::chat {
namespace {

absl::Status CheckAll(const std::vector<NodePtr>& nodes, bool in_condition);

absl::Status CheckNode(const Node& node, bool in_condition) {
  if (!in_condition && node.kind == NodeKind::kFilter && FindFilter(node.name) == nullptr) {
    return TemplateFailed(node.at, absl::StrCat("no filter named '", node.name, "'"));
  }
  if (!in_condition && node.kind == NodeKind::kTest && FindTest(node.name) == nullptr) {
    return TemplateFailed(node.at, absl::StrCat("no test named '", node.name, "'"));
  }
  const bool condition = node.kind == NodeKind::kIf || node.kind == NodeKind::kCondition;
  const bool inner = in_condition || condition;
  TOKEND_RETURN_IF_ERROR(CheckAll(node.args, inner));
  for (const auto& [name, argument] : node.kwargs) {
    TOKEND_RETURN_IF_ERROR(CheckNode(*argument, inner));
  }
  for (const auto& [name, fallback] : node.parameters) {
    if (fallback != nullptr) TOKEND_RETURN_IF_ERROR(CheckNode(*fallback, false));
  }
  for (const NodePtr* more : {&node.star, &node.star_star}) {
    if (*more != nullptr) TOKEND_RETURN_IF_ERROR(CheckNode(**more, inner));
  }
  // The other blocks begin anew.
  TOKEND_RETURN_IF_ERROR(CheckAll(node.body, condition));
  return CheckAll(node.orelse, condition);
}

absl::Status CheckAll(const std::vector<NodePtr>& nodes, bool in_condition) {
  for (const NodePtr& node : nodes) {
    if (node != nullptr) TOKEND_RETURN_IF_ERROR(CheckNode(*node, in_condition));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNames(const std::vector<NodePtr>& statements) {
  return CheckAll(statements, false);
}

}  // namespace tokend::chat
