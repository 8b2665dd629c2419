#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/interpreter.h"

namespace tokend::chat {

absl::StatusOr<Value> Interpreter::MacroValue(const Node& node, Scope* scope) {
  auto macro = std::make_shared<Callable>();
  macro->type = Callable::Type::kMacro;
  macro->name = node.name;
  macro->node = &node;
  macro->scope = scope;
  for (; scope != nullptr; scope = scope->parent) scope->captured = true;
  return Value::Of(std::shared_ptr<const Callable>(std::move(macro)));
}

absl::StatusOr<Value> Interpreter::Call(const Value& callee, const Arguments& arguments) {
  if (callee.Is(Kind::kUndefined)) return Problem(callee.why());
  if (callee.Is(Kind::kLoop)) return CallLoop(callee.loop(), arguments);
  if (!callee.Is(Kind::kCallable)) {
    return Problem(absl::StrCat("'", TypeName(callee), "' is not callable"));
  }
  const Callable& callable = callee.callable();
  switch (callable.type) {
    case Callable::Type::kMacro:
      return CallMacro(callable, arguments);
    case Callable::Type::kMethod:
      return CallMethod(*this, callable.self, callable.name, arguments);
    case Callable::Type::kFunction:
      return CallFunction(*this, callable.name, arguments);
  }
  return Problem("a callable of no known kind");
}

absl::StatusOr<Value> Interpreter::CallMacro(const Callable& macro, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Enter());
  Block block(this, macro.scope);
  const absl::Status bound = BindParameters(*macro.node, arguments, block.scope());
  absl::StatusOr<Value> value = Value();
  if (bound.ok()) value = Captured(macro.node->body, block.scope());
  Leave();
  TOKEND_RETURN_IF_ERROR(bound);
  return value;
}

absl::Status Interpreter::BindParameters(const Node& macro, const Arguments& arguments,
                                         Scope* scope) {
  const auto& parameters = macro.parameters;
  const size_t given = std::min(arguments.positional.size(), parameters.size());
  for (size_t i = 0; i < given; ++i) scope->Set(parameters[i].first, arguments.positional[i]);
  std::vector<std::pair<Value, Value>> more_named;
  const Value* caller = nullptr;
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find_if(parameters.begin(), parameters.end(),
                                    [&n = name](const auto& other) { return other.first == n; });
    if (place != parameters.end()) {
      if (static_cast<size_t>(place - parameters.begin()) < given) {
        return Problem(absl::StrCat("macro '", macro.name, "' is given '", name, "' twice"));
      }
      scope->Set(place->first, value);
    } else if (name == "caller") {
      caller = &value;
    } else {
      more_named.emplace_back(Value::String(name, false), value);
    }
  }
  if (caller != nullptr && !macro.reads_caller) {
    return Problem(
        absl::StrCat("macro '", macro.name, "' was given a caller that it does not use"));
  }
  if (!more_named.empty() && !macro.reads_kwargs) {
    return Problem(absl::StrCat("macro '", macro.name, "' takes no keyword argument '",
                                more_named[0].first.text().bytes(), "'"));
  }
  if (arguments.positional.size() > given && !macro.reads_varargs) {
    return Problem(absl::StrCat("macro '", macro.name, "' takes not more than ", parameters.size(),
                                " argument(s)"));
  }
  for (const auto& [name, fallback] : parameters) {
    const auto set = std::find_if(scope->names.begin(), scope->names.end(),
                                  [&n = name](const auto& other) { return other.first == n; });
    if (set != scope->names.end()) continue;
    Value value = Value::Undefined(absl::StrCat("parameter '", name, "' was not provided"));
    if (fallback != nullptr) {
      TOKEND_ASSIGN_OR_RETURN(value, Eval(*fallback, scope));
    }
    scope->Set(name, std::move(value));
  }
  if (macro.reads_caller) {
    scope->Set("caller", caller != nullptr ? *caller : Value::Undefined("no caller defined"));
  }
  if (macro.reads_kwargs) {
    TOKEND_ASSIGN_OR_RETURN(Value kwargs, MakeDict(std::move(more_named)));
    scope->Set("kwargs", std::move(kwargs));
  }
  if (macro.reads_varargs) {
    TOKEND_ASSIGN_OR_RETURN(
        Value varargs, MakeList({arguments.positional.begin() + static_cast<std::ptrdiff_t>(given),
                                 arguments.positional.end()},
                                List::Shape::kTuple));
    scope->Set("varargs", std::move(varargs));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::CallLoop(LoopState* loop, const Arguments& arguments) {
  if (loop->node == nullptr) return Problem("the loop must have the 'recursive' marker");
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("loop", arguments, {"iterable"}, 1));
  TOKEND_RETURN_IF_ERROR(Enter());
  TextBuilder out;
  const absl::Status ran = RunLoop(*loop->node, *bound[0], loop->depth + 1, loop->scope, &out);
  Leave();
  TOKEND_RETURN_IF_ERROR(ran);
  TOKEND_ASSIGN_OR_RETURN(Text text, out.Build());
  return Value::String(std::move(text));
}

}  // namespace tokend::chat
