#include "core/chat/interpreter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"

namespace tokend::chat {

void Scope::Set(absl::string_view name, Value value) {
  for (auto& [key, old] : names) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  names.emplace_back(name, std::move(value));
}

Interpreter::Block::Block(Interpreter* interpreter, Scope* parent)
    : interpreter_(interpreter), scope_(std::make_unique<Scope>()) {
  scope_->parent = parent;
}

Interpreter::Block::~Block() {
  if (scope_->captured) interpreter_->kept_scopes_.push_back(std::move(scope_));
}

absl::StatusOr<Text> Interpreter::Run(const std::vector<NodePtr>& statements) {
  Block root(this, nullptr);
  TextBuilder out;
  TOKEND_RETURN_IF_ERROR(Exec(statements, root.scope(), &out).status());
  auto text = out.Build();
  if (!text.ok()) return WithPosition(text.status(), {1, 1});
  return text;
}

absl::Status Interpreter::Spend(size_t steps) {
  steps_ += static_cast<int64_t>(std::min<size_t>(steps, kMaxSteps));
  if (steps_ > kMaxSteps) return Problem("it takes too many steps");
  return absl::OkStatus();
}

absl::Status Interpreter::SpendOn(const Value& value) {
  if (value.Is(Kind::kString)) return Spend(value.text().size() / 64);
  if (value.Is(Kind::kList)) return Spend(value.list().items.size());
  if (value.Is(Kind::kDict)) return Spend(value.dict().entries.size());
  return absl::OkStatus();
}

absl::Status Interpreter::Enter() {
  if (depth_ >= kMaxCallDepth) return Problem("calls nested too deep");
  TOKEND_RETURN_IF_ERROR(Spend(1));
  ++depth_;
  return absl::OkStatus();
}

Namespace* Interpreter::NewNamespace() {
  namespaces_.push_back(std::make_unique<Namespace>());
  return namespaces_.back().get();
}

Value Interpreter::LookUp(absl::string_view name, const Scope* scope) const {
  for (; scope != nullptr; scope = scope->parent) {
    for (const auto& [key, value] : scope->names) {
      if (key == name) return value;
    }
  }
  if (const Value* value = variables_.Find(name); value != nullptr) return *value;
  if (IsGlobalFunction(name)) {
    auto function = std::make_shared<Callable>();
    function->type = Callable::Type::kFunction;
    function->name = std::string(name);
    return Value::Of(std::shared_ptr<const Callable>(std::move(function)));
  }
  return Value::Undefined(absl::StrCat("'", name, "' is undefined"));
}

}  // namespace tokend::chat
