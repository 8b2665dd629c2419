#ifndef TOKEND_CORE_CHAT_AST_H_
#define TOKEND_CORE_CHAT_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/chat/errors.h"
#include "core/chat/value.h"

namespace tokend::chat {

enum class NodeKind {
  // Expressions; `args` are the operands.
  kConst,  // constant
  kName,   // name; also a target
  kNsRef,  // target NAME.attribute: name, constant (the attribute)
  kList,
  kTuple,    // also a target
  kDict,     // key, value, key, value ...
  kGetAttr,  // args[0].name
  kGetItem,  // args[0][args[1]]
  kSlice,    // args[0][args[1]:args[2]:args[3]], the last three may be nullptr
  kCall,     // args[0](args[1:], kwargs, *star, **star_star)
  kFilter,   // args[0] | name(args[1:], ...); args[0] is nullptr in a filter block
  kTest,     // args[0] is name(args[1:], ...)
  kNot,
  kNegative,
  kPositive,
  kBinary,   // name: + - * / // % **
  kCompare,  // args[0] names[0] args[1] names[1] args[2] ...
  kAnd,
  kOr,
  kConcat,
  kCondition,  // args[0] if args[1] else args[2]; args[2] may be nullptr
  // Statements; `body` and `orelse` hold statements.
  kData,         // constant
  kOutput,       // args[0]
  kIf,           // args[0] is the test, the others are its elifs, kIf themselves
  kFor,          // for args[0] in args[1] if args[2] (may be nullptr); flag: recursive
  kSet,          // args[0] = args[1]
  kSetBlock,     // args[0] = body, through the filters args[1] (may be nullptr)
  kMacro,        // name, parameters, body
  kCallBlock,    // args[0] is the call, parameters and body are the caller's
  kFilterBlock,  // args[0] is the filter
  kWith,         // args: target, value, target, value ...
  kScope,        // body in a scope of its own: the `generation` tag
  kBreak,
  kContinue,
};

struct Node;
using NodePtr = std::unique_ptr<Node>;

struct Node {
  NodeKind kind = NodeKind::kConst;
  Position at;
  std::string name;
  Value constant;
  std::vector<NodePtr> args;
  std::vector<std::pair<std::string, NodePtr>> kwargs;
  NodePtr star;
  NodePtr star_star;
  std::vector<std::string> names;
  std::vector<NodePtr> body;
  std::vector<NodePtr> orelse;
  bool flag = false;
  // Of a macro or caller: names and defaults (may be nullptr), and which of Jinja's own variables
  // the body reads.
  std::vector<std::pair<std::string, NodePtr>> parameters;
  bool reads_varargs = false;
  bool reads_kwargs = false;
  bool reads_caller = false;
};

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_AST_H_
