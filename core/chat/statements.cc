#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/interpreter.h"
#include "core/chat/python_text.h"

namespace tokend::chat {

absl::StatusOr<Flow> Interpreter::Exec(const std::vector<NodePtr>& statements, Scope* scope,
                                       TextBuilder* out) {
  for (const NodePtr& statement : statements) {
    const absl::Status entered = Enter();
    if (!entered.ok()) return WithPosition(entered, statement->at);
    const absl::StatusOr<Flow> flow = ExecOne(*statement, scope, out);
    Leave();
    if (!flow.ok()) return WithPosition(flow.status(), statement->at);
    if (out->overflowed()) return WithPosition(out->Build().status(), statement->at);
    if (*flow != Flow::kNext) return *flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Flow> Interpreter::ExecOne(const Node& node, Scope* scope, TextBuilder* out) {
  switch (node.kind) {
    case NodeKind::kData:
      out->Append(node.constant.text());
      return Flow::kNext;
    case NodeKind::kOutput: {
      TOKEND_ASSIGN_OR_RETURN(const Value value, Eval(*node.args[0], scope));
      TOKEND_RETURN_IF_ERROR(AppendStr(value, out));
      return Flow::kNext;
    }
    case NodeKind::kIf:
      return ExecIf(node, scope, out);
    case NodeKind::kFor:
      return ExecFor(node, scope, out);
    case NodeKind::kSet: {
      TOKEND_ASSIGN_OR_RETURN(Value value, Eval(*node.args[1], scope));
      TOKEND_RETURN_IF_ERROR(Assign(*node.args[0], std::move(value), scope));
      return Flow::kNext;
    }
    case NodeKind::kSetBlock:
      TOKEND_RETURN_IF_ERROR(ExecSetBlock(node, scope));
      return Flow::kNext;
    case NodeKind::kMacro: {
      TOKEND_ASSIGN_OR_RETURN(Value macro, MacroValue(node, scope));
      scope->Set(node.name, std::move(macro));
      return Flow::kNext;
    }
    case NodeKind::kCallBlock:
      TOKEND_RETURN_IF_ERROR(ExecCallBlock(node, scope, out));
      return Flow::kNext;
    case NodeKind::kFilterBlock:
      TOKEND_RETURN_IF_ERROR(ExecFilterBlock(node, scope, out));
      return Flow::kNext;
    case NodeKind::kWith:
      TOKEND_RETURN_IF_ERROR(ExecWith(node, scope, out));
      return Flow::kNext;
    case NodeKind::kScope: {
      Block block(this, scope);
      return Exec(node.body, block.scope(), out);
    }
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      return Problem("an expression where a statement belongs");
  }
}

absl::StatusOr<Flow> Interpreter::ExecIf(const Node& node, Scope* scope, TextBuilder* out) {
  TOKEND_ASSIGN_OR_RETURN(const Value test, Eval(*node.args[0], scope));
  if (IsTrue(test)) return Exec(node.body, scope, out);
  for (size_t i = 1; i < node.args.size(); ++i) {
    const Node& elif = *node.args[i];
    TOKEND_ASSIGN_OR_RETURN(const Value elif_test, Eval(*elif.args[0], scope));
    if (IsTrue(elif_test)) return Exec(elif.body, scope, out);
  }
  return Exec(node.orelse, scope, out);
}

absl::StatusOr<std::vector<Value>> Interpreter::LoopItems(const Node& node, const Value& iterable,
                                                          Scope* scope) {
  auto items = Elements(iterable);
  if (!items.ok()) return WithPosition(items.status(), node.args[1]->at);
  TOKEND_RETURN_IF_ERROR(Spend(items->size()));
  if (node.args[2] == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : *items) {
    Block block(this, scope);
    TOKEND_RETURN_IF_ERROR(Assign(*node.args[0], item, block.scope()));
    TOKEND_ASSIGN_OR_RETURN(const Value test, Eval(*node.args[2], block.scope()));
    if (IsTrue(test)) kept.push_back(std::move(item));
  }
  return kept;
}

absl::StatusOr<Flow> Interpreter::ExecFor(const Node& node, Scope* scope, TextBuilder* out) {
  TOKEND_ASSIGN_OR_RETURN(const Value iterable, Eval(*node.args[1], scope));
  TOKEND_RETURN_IF_ERROR(RunLoop(node, iterable, 1, scope, out));
  return Flow::kNext;
}

absl::Status Interpreter::RunLoop(const Node& node, const Value& iterable, int depth, Scope* scope,
                                  TextBuilder* out) {
  TOKEND_ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(node, iterable, scope));
  if (items.empty()) {
    Block block(this, scope);
    return Exec(node.orelse, block.scope(), out).status();
  }
  loops_.push_back(std::make_unique<LoopState>());
  LoopState* const loop = loops_.back().get();
  loop->items = std::move(items);
  loop->depth = depth;
  if (node.flag) {
    loop->node = &node;
    loop->scope = scope;
    for (Scope* at = scope; at != nullptr; at = at->parent) at->captured = true;
  }
  for (; loop->index < loop->items.size(); ++loop->index) {
    Block block(this, scope);
    block.scope()->Set("loop", Value::Of(loop));
    TOKEND_RETURN_IF_ERROR(Assign(*node.args[0], loop->items[loop->index], block.scope()));
    TOKEND_ASSIGN_OR_RETURN(const Flow flow, Exec(node.body, block.scope(), out));
    if (flow == Flow::kBreak) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::Captured(const std::vector<NodePtr>& body, Scope* scope) {
  Block block(this, scope);
  TextBuilder out;
  TOKEND_RETURN_IF_ERROR(Exec(body, block.scope(), &out).status());
  TOKEND_ASSIGN_OR_RETURN(Text text, out.Build());
  Value value = Value::String(std::move(text));
  TOKEND_RETURN_IF_ERROR(SpendOn(value));
  return value;
}

absl::Status Interpreter::ExecSetBlock(const Node& node, Scope* scope) {
  TOKEND_ASSIGN_OR_RETURN(Value value, Captured(node.body, scope));
  if (node.args[1] != nullptr) {
    TOKEND_ASSIGN_OR_RETURN(value, EvalFilter(*node.args[1], scope, &value));
  }
  return Assign(*node.args[0], std::move(value), scope);
}

absl::Status Interpreter::ExecFilterBlock(const Node& node, Scope* scope, TextBuilder* out) {
  TOKEND_ASSIGN_OR_RETURN(const Value input, Captured(node.body, scope));
  TOKEND_ASSIGN_OR_RETURN(const Value value, EvalFilter(*node.args[0], scope, &input));
  return AppendStr(value, out);
}

absl::Status Interpreter::ExecWith(const Node& node, Scope* scope, TextBuilder* out) {
  Block block(this, scope);
  // The values are those of the scope around.
  for (size_t i = 0; i < node.args.size(); i += 2) {
    TOKEND_ASSIGN_OR_RETURN(Value value, Eval(*node.args[i + 1], scope));
    TOKEND_RETURN_IF_ERROR(Assign(*node.args[i], std::move(value), block.scope()));
  }
  return Exec(node.body, block.scope(), out).status();
}

absl::Status Interpreter::ExecCallBlock(const Node& node, Scope* scope, TextBuilder* out) {
  const Node& call = *node.args[0];
  TOKEND_ASSIGN_OR_RETURN(const Value callee, Eval(*call.args[0], scope));
  TOKEND_ASSIGN_OR_RETURN(Arguments arguments, EvalArguments(call, scope));
  TOKEND_ASSIGN_OR_RETURN(Value caller, MacroValue(node, scope));
  arguments.named.emplace_back("caller", std::move(caller));
  TOKEND_ASSIGN_OR_RETURN(const Value value, Call(callee, arguments));
  return AppendStr(value, out);
}

absl::Status Interpreter::Assign(const Node& target, Value value, Scope* scope) {
  if (target.kind == NodeKind::kName) {
    scope->Set(target.name, std::move(value));
    return absl::OkStatus();
  }
  if (target.kind == NodeKind::kNsRef) {
    const Value space = LookUp(target.name, scope);
    if (!space.Is(Kind::kNamespace))
      return Problem("cannot assign attribute on non-namespace object");
    space.space()->Set(target.constant.text().bytes(), std::move(value));
    return absl::OkStatus();
  }
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(value));
  if (items.size() != target.args.size()) {
    return Problem(
        absl::StrCat("wanted ", target.args.size(), " values to unpack, not ", items.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    TOKEND_RETURN_IF_ERROR(Assign(*target.args[i], items[i], scope));
  }
  return absl::OkStatus();
}

}  // namespace tokend::chat
