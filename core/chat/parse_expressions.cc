#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/limits.h"
#include "core/chat/parser.h"

namespace tokend::chat {
namespace {

// From the weakest on. Powers bind left to right, as Jinja has it.
struct Level {
  NodeKind kind;
  absl::string_view operators[4];
};
constexpr int kOrLevel = 0;
constexpr int kAndLevel = 1;
constexpr int kSumLevel = 2;
constexpr int kPowerLevel = 5;
constexpr Level kLevels[] = {
    {NodeKind::kOr, {"or"}},
    {NodeKind::kAnd, {"and"}},
    {NodeKind::kBinary, {"+", "-"}},
    {NodeKind::kConcat, {"~"}},
    {NodeKind::kBinary, {"*", "/", "//", "%"}},
    {NodeKind::kBinary, {"**"}},
};

bool IsOf(const Level& level, const Token& token) {
  const bool word = level.kind == NodeKind::kOr || level.kind == NodeKind::kAnd;
  if (token.type != (word ? Token::Type::kName : Token::Type::kOperator)) return false;
  return std::find(std::begin(level.operators), std::end(level.operators), token.text) !=
             std::end(level.operators) &&
         !token.text.empty();
}

}  // namespace

absl::StatusOr<NodePtr> Parser::ParseExpression(bool with_condition) {
  if (depth_ >= kMaxSourceDepth) return TemplateFailed(Current().at, "brackets nested too deep");
  ++depth_;
  auto node = with_condition ? ParseCondition() : ParseBinary(kOrLevel);
  --depth_;
  return node;
}

absl::StatusOr<NodePtr> Parser::ParseCondition() {
  TOKEND_ASSIGN_OR_RETURN(NodePtr value, ParseBinary(kOrLevel));
  while (Current().IsName("if")) {
    NodePtr node = Make(NodeKind::kCondition);
    Advance();
    TOKEND_ASSIGN_OR_RETURN(NodePtr test, ParseBinary(kOrLevel));
    NodePtr other;
    if (SkipName("else")) {
      TOKEND_ASSIGN_OR_RETURN(other, ParseExpression());
    }
    node->args.push_back(std::move(value));
    node->args.push_back(std::move(test));
    node->args.push_back(std::move(other));
    value = std::move(node);
  }
  return value;
}

absl::StatusOr<NodePtr> Parser::ParseBinary(int level) {
  const auto operand = [&] {
    if (level == kAndLevel) return ParseNot();
    return level == kPowerLevel ? ParseUnary() : ParseBinary(level + 1);
  };
  TOKEND_ASSIGN_OR_RETURN(NodePtr left, operand());
  // A chain is one node, or a long one would be as deep as it is long.
  NodePtr chain;
  while (IsOf(kLevels[level], Current())) {
    if (chain == nullptr) {
      chain = Make(kLevels[level].kind);
      chain->args.push_back(std::move(left));
    }
    chain->names.push_back(Current().text);
    Advance();
    TOKEND_ASSIGN_OR_RETURN(NodePtr right, operand());
    chain->args.push_back(std::move(right));
  }
  return chain == nullptr ? std::move(left) : std::move(chain);
}

absl::StatusOr<NodePtr> Parser::ParseNot() {
  if (!Current().IsName("not")) return ParseCompare();
  if (depth_ >= kMaxSourceDepth) return TemplateFailed(Current().at, "brackets nested too deep");
  NodePtr node = Make(NodeKind::kNot);
  Advance();
  ++depth_;
  auto operand = ParseNot();
  --depth_;
  TOKEND_RETURN_IF_ERROR(operand.status());
  node->args.push_back(*std::move(operand));
  return node;
}

absl::StatusOr<NodePtr> Parser::ParseCompare() {
  TOKEND_ASSIGN_OR_RETURN(NodePtr left, ParseBinary(kSumLevel));
  NodePtr node = Make(NodeKind::kCompare);
  node->args.push_back(std::move(left));
  static constexpr absl::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  while (true) {
    std::string op;
    if (Current().Is(Token::Type::kOperator) &&
        std::find(std::begin(kOperators), std::end(kOperators), Current().text) !=
            std::end(kOperators)) {
      op = Current().text;
    } else if (Current().IsName("in")) {
      op = "in";
    } else if (Current().IsName("not") && Ahead().IsName("in")) {
      op = "not in";
      Advance();
    } else {
      break;
    }
    node->names.push_back(op);
    Advance();
    TOKEND_ASSIGN_OR_RETURN(NodePtr right, ParseBinary(kSumLevel));
    node->args.push_back(std::move(right));
  }
  return node->names.empty() ? std::move(node->args[0]) : std::move(node);
}

absl::StatusOr<NodePtr> Parser::ParseUnary(bool with_filter) {
  NodePtr node;
  if (Current().IsOperator("-") || Current().IsOperator("+")) {
    if (depth_ >= kMaxSourceDepth) return TemplateFailed(Current().at, "brackets nested too deep");
    node = Make(Current().text == "-" ? NodeKind::kNegative : NodeKind::kPositive);
    Advance();
    ++depth_;
    auto operand = ParseUnary(false);
    --depth_;
    TOKEND_RETURN_IF_ERROR(operand.status());
    node->args.push_back(*std::move(operand));
  } else {
    TOKEND_ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  TOKEND_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  return with_filter ? ParseFilters(std::move(node)) : std::move(node);
}

absl::StatusOr<NodePtr> Parser::ParseNameOrConstant() {
  const std::string& name = Current().text;
  const bool is_true = name == "true" || name == "True";
  NodePtr node = Make(NodeKind::kConst);
  if (is_true || name == "false" || name == "False") {
    node->constant = Value::Bool(is_true);
  } else if (name == "none" || name == "None") {
    node->constant = Value::None();
  } else {
    node->kind = NodeKind::kName;
    node->name = name;
    for (MacroUse& use : macros_) {
      use.varargs = use.varargs || name == "varargs";
      use.kwargs = use.kwargs || name == "kwargs";
      use.caller = use.caller || name == "caller";
    }
  }
  Advance();
  return node;
}

absl::StatusOr<NodePtr> Parser::ParsePrimary() {
  NodePtr node = Make(NodeKind::kConst);
  switch (Current().type) {
    case Token::Type::kName:
      return ParseNameOrConstant();
    case Token::Type::kString: {
      std::string text;
      for (; Current().Is(Token::Type::kString); Advance()) text += Current().text;
      node->constant = Value::String(text, true);
      return node;
    }
    case Token::Type::kInt:
      node->constant = Value::Int(Current().integer);
      Advance();
      return node;
    case Token::Type::kFloat:
      node->constant = Value::Float(Current().floating);
      Advance();
      return node;
    default:
      break;
  }
  if (Skip("(")) {
    TOKEND_ASSIGN_OR_RETURN(node, ParseTuple(true, true));
    TOKEND_RETURN_IF_ERROR(Expect(")"));
    return node;
  }
  if (Current().IsOperator("[")) return ParseList();
  if (Current().IsOperator("{")) return ParseDict();
  return Unexpected();
}

absl::StatusOr<NodePtr> Parser::ParseTuple(bool with_condition, bool in_brackets,
                                           absl::string_view end) {
  NodePtr tuple = Make(NodeKind::kTuple);
  bool is_tuple = false;
  while (true) {
    if (!tuple->args.empty()) TOKEND_RETURN_IF_ERROR(Expect(","));
    const bool at_end = Current().Is(Token::Type::kBlockEnd) ||
                        Current().Is(Token::Type::kOutputEnd) || Current().IsOperator(")") ||
                        (!end.empty() && Current().IsName(end));
    if (at_end) break;
    TOKEND_ASSIGN_OR_RETURN(NodePtr item, ParseExpression(with_condition));
    tuple->args.push_back(std::move(item));
    if (!Current().IsOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (!tuple->args.empty()) return std::move(tuple->args[0]);
  if (!in_brackets) return Unexpected("an expression");
  return tuple;
}

absl::StatusOr<NodePtr> Parser::ParseList() {
  NodePtr list = Make(NodeKind::kList);
  Advance();
  while (!Current().IsOperator("]")) {
    if (!list->args.empty()) TOKEND_RETURN_IF_ERROR(Expect(","));
    if (Current().IsOperator("]")) break;
    TOKEND_ASSIGN_OR_RETURN(NodePtr item, ParseExpression());
    list->args.push_back(std::move(item));
  }
  TOKEND_RETURN_IF_ERROR(Expect("]"));
  return list;
}

absl::StatusOr<NodePtr> Parser::ParseDict() {
  NodePtr dict = Make(NodeKind::kDict);
  Advance();
  while (!Current().IsOperator("}")) {
    if (!dict->args.empty()) TOKEND_RETURN_IF_ERROR(Expect(","));
    if (Current().IsOperator("}")) break;
    TOKEND_ASSIGN_OR_RETURN(NodePtr key, ParseExpression());
    TOKEND_RETURN_IF_ERROR(Expect(":"));
    TOKEND_ASSIGN_OR_RETURN(NodePtr value, ParseExpression());
    dict->args.push_back(std::move(key));
    dict->args.push_back(std::move(value));
  }
  TOKEND_RETURN_IF_ERROR(Expect("}"));
  return dict;
}

}  // namespace tokend::chat
