#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/interpreter.h"
#include "core/chat/python_text.h"

namespace tokend::chat {
namespace {

absl::StatusOr<Value> Negated(const Value& value, bool negative) {
  if (value.Is(Kind::kUndefined)) return Problem(value.why());
  if (value.Is(Kind::kFloat)) {
    return Value::Float(negative ? -value.floating() : value.floating()).WithTrust(value.trusted());
  }
  if (!value.IsInteger()) {
    return Problem(absl::StrCat("bad operand type for unary operator: '", TypeName(value), "'"));
  }
  if (value.integer() == std::numeric_limits<int64_t>::min()) {
    return Problem("an integer beyond 64 bits");
  }
  return Value::Int(negative ? -value.integer() : value.integer()).WithTrust(value.trusted());
}

}  // namespace

absl::StatusOr<Value> Interpreter::Eval(const Node& node, Scope* scope) {
  const absl::Status entered = Enter();
  if (!entered.ok()) return WithPosition(entered, node.at);
  absl::StatusOr<Value> value = EvalKind(node, scope);
  Leave();
  if (!value.ok()) return WithPosition(value.status(), node.at);
  return value;
}

absl::StatusOr<Value> Interpreter::EvalKind(const Node& node, Scope* scope) {
  switch (node.kind) {
    case NodeKind::kConst:
      return node.constant;
    case NodeKind::kName:
      return LookUp(node.name, scope);
    case NodeKind::kList:
    case NodeKind::kTuple: {
      TOKEND_ASSIGN_OR_RETURN(std::vector<Value> items, EvalAll(node.args, 0, scope));
      return MakeList(std::move(items),
                      node.kind == NodeKind::kList ? List::Shape::kList : List::Shape::kTuple);
    }
    case NodeKind::kDict:
      return EvalDict(node, scope);
    case NodeKind::kGetAttr: {
      TOKEND_ASSIGN_OR_RETURN(const Value object, Eval(*node.args[0], scope));
      return GetAttribute(object, node.name);
    }
    case NodeKind::kGetItem: {
      TOKEND_ASSIGN_OR_RETURN(const Value object, Eval(*node.args[0], scope));
      TOKEND_ASSIGN_OR_RETURN(const Value key, Eval(*node.args[1], scope));
      if (object.Is(Kind::kString)) TOKEND_RETURN_IF_ERROR(SpendOn(object));
      return GetItem(object, key);
    }
    case NodeKind::kSlice:
      return EvalSlice(node, scope);
    case NodeKind::kCall: {
      TOKEND_ASSIGN_OR_RETURN(const Value callee, Eval(*node.args[0], scope));
      TOKEND_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(node, scope));
      TOKEND_ASSIGN_OR_RETURN(Value value, Call(callee, arguments));
      TOKEND_RETURN_IF_ERROR(SpendOn(value));
      return value;
    }
    case NodeKind::kFilter:
      return EvalFilter(node, scope, nullptr);
    case NodeKind::kTest:
      return EvalTest(node, scope);
    case NodeKind::kNot: {
      TOKEND_ASSIGN_OR_RETURN(const Value operand, Eval(*node.args[0], scope));
      return Value::Bool(!IsTrue(operand));
    }
    case NodeKind::kNegative:
    case NodeKind::kPositive: {
      TOKEND_ASSIGN_OR_RETURN(const Value operand, Eval(*node.args[0], scope));
      return Negated(operand, node.kind == NodeKind::kNegative);
    }
    case NodeKind::kBinary:
      return EvalBinary(node, scope);
    case NodeKind::kCompare:
      return EvalCompare(node, scope);
    case NodeKind::kAnd:
    case NodeKind::kOr:
      return EvalAndOr(node, scope);
    case NodeKind::kConcat:
      return EvalConcat(node, scope);
    case NodeKind::kCondition: {
      TOKEND_ASSIGN_OR_RETURN(const Value test, Eval(*node.args[1], scope));
      if (IsTrue(test)) return Eval(*node.args[0], scope);
      if (node.args[2] != nullptr) return Eval(*node.args[2], scope);
      return Value::Undefined("the inline if-expression evaluated to false and has no else");
    }
    default:
      return Problem("a statement where an expression belongs");
  }
}

absl::StatusOr<std::vector<Value>> Interpreter::EvalAll(const std::vector<NodePtr>& nodes,
                                                        size_t first, Scope* scope) {
  std::vector<Value> values;
  for (size_t i = first; i < nodes.size(); ++i) {
    TOKEND_ASSIGN_OR_RETURN(Value value, Eval(*nodes[i], scope));
    values.push_back(std::move(value));
  }
  return values;
}

absl::StatusOr<Value> Interpreter::EvalDict(const Node& node, Scope* scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i < node.args.size(); i += 2) {
    TOKEND_ASSIGN_OR_RETURN(Value key, Eval(*node.args[i], scope));
    if (key.Is(Kind::kDict) || (key.Is(Kind::kList) && key.list().shape == List::Shape::kList)) {
      return Problem(absl::StrCat("unhashable type: '", TypeName(key), "'"));
    }
    TOKEND_ASSIGN_OR_RETURN(Value value, Eval(*node.args[i + 1], scope));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return MakeDict(std::move(entries));
}

absl::StatusOr<Value> Interpreter::EvalSlice(const Node& node, Scope* scope) {
  TOKEND_ASSIGN_OR_RETURN(const Value object, Eval(*node.args[0], scope));
  Value parts[3] = {Value::None(), Value::None(), Value::None()};
  for (size_t i = 0; i < 3; ++i) {
    if (node.args[i + 1] == nullptr) continue;
    TOKEND_ASSIGN_OR_RETURN(parts[i], Eval(*node.args[i + 1], scope));
  }
  TOKEND_ASSIGN_OR_RETURN(Value value, GetSlice(object, parts[0], parts[1], parts[2]));
  TOKEND_RETURN_IF_ERROR(SpendOn(object));
  return value;
}

absl::StatusOr<Value> Interpreter::EvalFilter(const Node& node, Scope* scope, const Value* input) {
  const Filter filter = FindFilter(node.name);
  if (filter == nullptr) return Problem(absl::StrCat("no filter named '", node.name, "'"));
  Value value;
  if (node.args[0] == nullptr) {
    TOKEND_CHECK(input != nullptr);
    value = *input;
  } else if (input != nullptr && node.args[0]->kind == NodeKind::kFilter) {
    TOKEND_ASSIGN_OR_RETURN(value, EvalFilter(*node.args[0], scope, input));
  } else {
    TOKEND_ASSIGN_OR_RETURN(value, Eval(*node.args[0], scope));
  }
  TOKEND_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(node, scope));
  TOKEND_RETURN_IF_ERROR(SpendOn(value));
  TOKEND_ASSIGN_OR_RETURN(value, filter(*this, value, arguments));
  TOKEND_RETURN_IF_ERROR(SpendOn(value));
  return value;
}

absl::StatusOr<Value> Interpreter::EvalTest(const Node& node, Scope* scope) {
  const Test test = FindTest(node.name);
  if (test == nullptr) return Problem(absl::StrCat("no test named '", node.name, "'"));
  TOKEND_ASSIGN_OR_RETURN(const Value value, Eval(*node.args[0], scope));
  TOKEND_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(node, scope));
  TOKEND_ASSIGN_OR_RETURN(const bool holds, test(*this, value, arguments));
  return Value::Bool(holds);
}

absl::StatusOr<Value> Interpreter::EvalBinary(const Node& node, Scope* scope) {
  TOKEND_ASSIGN_OR_RETURN(Value left, Eval(*node.args[0], scope));
  for (size_t i = 0; i < node.names.size(); ++i) {
    TOKEND_ASSIGN_OR_RETURN(const Value right, Eval(*node.args[i + 1], scope));
    TOKEND_ASSIGN_OR_RETURN(left, Operate(node.names[i], left, right));
    TOKEND_RETURN_IF_ERROR(SpendOn(left));
  }
  return left;
}

absl::StatusOr<Value> Interpreter::EvalCompare(const Node& node, Scope* scope) {
  TOKEND_ASSIGN_OR_RETURN(Value left, Eval(*node.args[0], scope));
  for (size_t i = 0; i < node.names.size(); ++i) {
    TOKEND_ASSIGN_OR_RETURN(Value right, Eval(*node.args[i + 1], scope));
    TOKEND_RETURN_IF_ERROR(SpendOn(right));
    TOKEND_ASSIGN_OR_RETURN(const bool holds, Holds(node.names[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Interpreter::EvalConcat(const Node& node, Scope* scope) {
  TextBuilder builder;
  for (const NodePtr& operand : node.args) {
    TOKEND_ASSIGN_OR_RETURN(const Value value, Eval(*operand, scope));
    TOKEND_RETURN_IF_ERROR(AppendStr(value, &builder));
  }
  TOKEND_ASSIGN_OR_RETURN(Text text, builder.Build());
  Value value = Value::String(std::move(text));
  TOKEND_RETURN_IF_ERROR(SpendOn(value));
  return value;
}

absl::StatusOr<Value> Interpreter::EvalAndOr(const Node& node, Scope* scope) {
  const bool stops_at = node.kind == NodeKind::kOr;
  Value value;
  for (const NodePtr& operand : node.args) {
    TOKEND_ASSIGN_OR_RETURN(value, Eval(*operand, scope));
    if (IsTrue(value) == stops_at) break;
  }
  return value;
}

absl::StatusOr<Arguments> Interpreter::EvalArguments(const Node& node, Scope* scope) {
  Arguments arguments;
  TOKEND_ASSIGN_OR_RETURN(arguments.positional, EvalAll(node.args, 1, scope));
  for (const auto& [name, argument] : node.kwargs) {
    TOKEND_ASSIGN_OR_RETURN(Value value, Eval(*argument, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (node.star != nullptr) {
    TOKEND_ASSIGN_OR_RETURN(const Value more, Eval(*node.star, scope));
    TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(more));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (node.star_star != nullptr) {
    TOKEND_ASSIGN_OR_RETURN(const Value more, Eval(*node.star_star, scope));
    if (!more.Is(Kind::kDict)) return Problem("what follows ** must be a dict");
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.Is(Kind::kString)) return Problem("keywords must be strings");
      arguments.named.emplace_back(std::string(key.text().bytes()), value);
    }
  }
  return arguments;
}

}  // namespace tokend::chat
