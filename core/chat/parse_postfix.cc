// What follows a primary expression: attributes, subscripts, calls, filters, tests.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/limits.h"
#include "core/chat/parser.h"

namespace tokend::chat {
namespace {

// Each link of a chain is a node deeper in the tree.
constexpr int kMaxChain = kMaxSourceDepth;

}  // namespace

absl::StatusOr<NodePtr> Parser::ParsePostfix(NodePtr node) {
  for (int links = 0;; ++links) {
    if (links > kMaxChain) return TemplateFailed(Current().at, "an expression nested too deep");
    if (Current().IsOperator(".") || Current().IsOperator("[")) {
      TOKEND_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (Current().IsOperator("(")) {
      TOKEND_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<NodePtr> Parser::ParseSubscript(NodePtr node) {
  NodePtr subscript = Make(NodeKind::kGetItem);
  subscript->args.push_back(std::move(node));
  if (Skip(".")) {
    subscript->at = Current().at;
    if (Current().Is(Token::Type::kInt)) {
      NodePtr index = Make(NodeKind::kConst);
      index->constant = Value::Int(Current().integer);
      Advance();
      subscript->args.push_back(std::move(index));
      return subscript;
    }
    subscript->kind = NodeKind::kGetAttr;
    TOKEND_ASSIGN_OR_RETURN(subscript->name, TakeName());
    return subscript;
  }
  Advance();
  NodePtr parts[3];
  size_t count = 0;
  bool is_slice = false;
  while (!Current().IsOperator("]")) {
    if (Skip(":")) {
      is_slice = true;
      if (++count > 2) return Unexpected("']'");
      continue;
    }
    if (parts[count] != nullptr) return Unexpected("']'");
    TOKEND_ASSIGN_OR_RETURN(parts[count], ParseExpression());
  }
  if (!is_slice && parts[0] == nullptr) return Unexpected("an expression");
  Advance();
  if (is_slice) subscript->kind = NodeKind::kSlice;
  for (size_t i = 0; i < (is_slice ? 3 : 1); ++i) subscript->args.push_back(std::move(parts[i]));
  return subscript;
}

absl::StatusOr<NodePtr> Parser::ParseFilters(NodePtr node) {
  for (int links = 0;; ++links) {
    if (links > kMaxChain) return TemplateFailed(Current().at, "an expression nested too deep");
    if (Current().IsOperator("|")) {
      TOKEND_ASSIGN_OR_RETURN(node, ParseFilter(std::move(node)));
    } else if (Current().IsName("is")) {
      TOKEND_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (Current().IsOperator("(")) {
      TOKEND_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<NodePtr> Parser::ParseFilter(NodePtr node) {
  Advance();  // the bar
  NodePtr filter = Make(NodeKind::kFilter);
  TOKEND_ASSIGN_OR_RETURN(filter->name, TakeName());
  filter->args.push_back(std::move(node));
  if (Current().IsOperator("(")) TOKEND_RETURN_IF_ERROR(ParseArguments(filter.get()));
  return filter;
}

absl::StatusOr<NodePtr> Parser::ParseTest(NodePtr node) {
  Advance();  // "is"
  const bool negated = SkipName("not");
  NodePtr test = Make(NodeKind::kTest);
  TOKEND_ASSIGN_OR_RETURN(test->name, TakeName());
  test->args.push_back(std::move(node));
  using Type = Token::Type;
  const bool word = Current().Is(Type::kName) && !AtOneOf({"else", "or", "and", "if"});
  if (Current().IsOperator("(")) {
    TOKEND_RETURN_IF_ERROR(ParseArguments(test.get()));
  } else if (word || Current().Is(Type::kString) || Current().Is(Type::kInt) ||
             Current().Is(Type::kFloat) || Current().IsOperator("[") || Current().IsOperator("{")) {
    if (Current().IsName("is")) return TemplateFailed(Current().at, "tests cannot be chained");
    TOKEND_ASSIGN_OR_RETURN(NodePtr argument, ParsePrimary());
    TOKEND_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test->args.push_back(std::move(argument));
  }
  if (!negated) return test;
  NodePtr inverse = Make(NodeKind::kNot);
  inverse->at = test->at;
  inverse->args.push_back(std::move(test));
  return inverse;
}

absl::StatusOr<NodePtr> Parser::ParseCall(NodePtr node) {
  NodePtr call = Make(NodeKind::kCall);
  call->at = node->at;
  call->args.push_back(std::move(node));
  TOKEND_RETURN_IF_ERROR(ParseArguments(call.get()));
  return call;
}

absl::Status Parser::ParseArguments(Node* call) {
  TOKEND_RETURN_IF_ERROR(Expect("("));
  bool first = true;
  while (!Current().IsOperator(")")) {
    if (!first) TOKEND_RETURN_IF_ERROR(Expect(","));
    if (!first && Current().IsOperator(")")) break;
    first = false;
    if (Skip("**")) {
      if (call->star_star != nullptr) return Unexpected("one ** argument at most");
      TOKEND_ASSIGN_OR_RETURN(call->star_star, ParseExpression());
    } else if (Skip("*")) {
      if (call->star != nullptr || call->star_star != nullptr) return Unexpected();
      TOKEND_ASSIGN_OR_RETURN(call->star, ParseExpression());
    } else if (Current().Is(Token::Type::kName) && Ahead().IsOperator("=")) {
      if (call->star_star != nullptr) return Unexpected();
      const std::string name = Current().text;
      Advance();
      Advance();
      TOKEND_ASSIGN_OR_RETURN(NodePtr value, ParseExpression());
      call->kwargs.emplace_back(name, std::move(value));
    } else {
      if (!call->kwargs.empty() || call->star != nullptr || call->star_star != nullptr) {
        return Unexpected("a named argument");
      }
      TOKEND_ASSIGN_OR_RETURN(NodePtr value, ParseExpression());
      call->args.push_back(std::move(value));
    }
  }
  return Expect(")");
}

}  // namespace tokend::chat
