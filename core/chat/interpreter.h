// One rendering: a tree walked over the caller's variables.
#ifndef TOKEND_CORE_CHAT_INTERPRETER_H_
#define TOKEND_CORE_CHAT_INTERPRETER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "core/chat/arguments.h"
#include "core/chat/ast.h"
#include "core/chat/limits.h"
#include "core/chat/value.h"

namespace tokend::chat {

// Variables of a block. Names belong to the tree.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<absl::string_view, Value>> names;
  bool captured = false;  // a macro looks names up in it, perhaps after its block's end

  void Set(absl::string_view name, Value value);
};

// What `loop` is. Belongs to the rendering.
struct LoopState {
  std::vector<Value> items;
  size_t index = 0;
  int depth = 1;
  const Node* node = nullptr;  // of a recursive loop
  Scope* scope = nullptr;      // around it
  Value last_changed;          // what changed() saw
  bool has_changed = false;
};

struct Callable {
  enum class Type {
    kMacro,     // node and scope
    kMethod,    // name, of self
    kFunction,  // a global one, by name
  };
  Type type = Type::kFunction;
  std::string name;
  Value self;
  const Node* node = nullptr;
  Scope* scope = nullptr;
};

// How a statement ended.
enum class Flow { kNext, kBreak, kContinue };

// Not thread-safe; good for one run. `variables` and the tree must outlive it.
class Interpreter {
 public:
  Interpreter(const Dict& variables, absl::CivilSecond now) : variables_(variables), now_(now) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  absl::StatusOr<Text> Run(const std::vector<NodePtr>& statements);

  // For filters, tests and methods.
  absl::StatusOr<Value> Call(const Value& callee, const Arguments& arguments);
  absl::CivilSecond now() const { return now_; }
  Namespace* NewNamespace();
  absl::Status Spend(size_t steps);

 private:
  // A scope that outlives its block only if captured.
  class Block {
   public:
    Block(Interpreter* interpreter, Scope* parent);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    Scope* scope() { return scope_.get(); }

   private:
    Interpreter* const interpreter_;
    std::unique_ptr<Scope> scope_;
  };

  // interpreter.cc
  absl::Status Enter();
  void Leave() { --depth_; }
  Value LookUp(absl::string_view name, const Scope* scope) const;
  absl::Status SpendOn(const Value& value);

  // statements.cc
  absl::StatusOr<Flow> Exec(const std::vector<NodePtr>& statements, Scope* scope, TextBuilder* out);
  absl::StatusOr<Flow> ExecOne(const Node& node, Scope* scope, TextBuilder* out);
  absl::StatusOr<Flow> ExecIf(const Node& node, Scope* scope, TextBuilder* out);
  absl::StatusOr<Flow> ExecFor(const Node& node, Scope* scope, TextBuilder* out);
  absl::Status RunLoop(const Node& node, const Value& iterable, int depth, Scope* scope,
                       TextBuilder* out);
  absl::StatusOr<std::vector<Value>> LoopItems(const Node& node, const Value& iterable,
                                               Scope* scope);
  absl::Status ExecCallBlock(const Node& node, Scope* scope, TextBuilder* out);
  absl::Status ExecSetBlock(const Node& node, Scope* scope);
  absl::Status ExecWith(const Node& node, Scope* scope, TextBuilder* out);
  absl::Status ExecFilterBlock(const Node& node, Scope* scope, TextBuilder* out);
  absl::StatusOr<Value> Captured(const std::vector<NodePtr>& body, Scope* scope);
  absl::Status Assign(const Node& target, Value value, Scope* scope);

  // expressions.cc
  absl::StatusOr<Value> Eval(const Node& node, Scope* scope);
  absl::StatusOr<Value> EvalKind(const Node& node, Scope* scope);
  absl::StatusOr<std::vector<Value>> EvalAll(const std::vector<NodePtr>& nodes, size_t first,
                                             Scope* scope);
  absl::StatusOr<Value> EvalDict(const Node& node, Scope* scope);
  absl::StatusOr<Value> EvalSlice(const Node& node, Scope* scope);
  absl::StatusOr<Value> EvalFilter(const Node& node, Scope* scope, const Value* input);
  absl::StatusOr<Value> EvalTest(const Node& node, Scope* scope);
  absl::StatusOr<Value> EvalBinary(const Node& node, Scope* scope);
  absl::StatusOr<Value> EvalCompare(const Node& node, Scope* scope);
  absl::StatusOr<Value> EvalConcat(const Node& node, Scope* scope);
  absl::StatusOr<Value> EvalAndOr(const Node& node, Scope* scope);
  absl::StatusOr<Arguments> EvalArguments(const Node& node, Scope* scope);

  // calls.cc
  absl::StatusOr<Value> MacroValue(const Node& node, Scope* scope);
  absl::StatusOr<Value> CallMacro(const Callable& macro, const Arguments& arguments);
  absl::Status BindParameters(const Node& macro, const Arguments& arguments, Scope* scope);
  absl::StatusOr<Value> CallLoop(LoopState* loop, const Arguments& arguments);

  const Dict& variables_;
  const absl::CivilSecond now_;
  int64_t steps_ = 0;
  int depth_ = 0;
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<std::unique_ptr<LoopState>> loops_;
};

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_INTERPRETER_H_
