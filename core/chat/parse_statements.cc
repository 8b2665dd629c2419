#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/limits.h"
#include "core/chat/parser.h"

namespace tokend::chat {

absl::StatusOr<Parser::Statements> Parser::ParseUntil(Names ends) {
  Statements statements;
  while (true) {
    if (Current().Is(Token::Type::kEnd)) {
      if (ends.size() == 0) return statements;
      return Unexpected(absl::StrCat("'", *(ends.end() - 1), "'"));
    }
    if (Current().Is(Token::Type::kBlockBegin)) {
      Advance();
      if (AtOneOf(ends)) return statements;
      TOKEND_ASSIGN_OR_RETURN(NodePtr tag, ParseTag());
      if (tag != nullptr) statements.push_back(std::move(tag));
    } else {
      TOKEND_ASSIGN_OR_RETURN(NodePtr statement, ParseStatement());
      statements.push_back(std::move(statement));
    }
  }
}

// From behind a tag's own tokens on. With `leave`, the tag that ends the body is left behind, too.
absl::StatusOr<Parser::Statements> Parser::ParseBody(Names ends, bool leave) {
  (void)Skip(":");
  TOKEND_RETURN_IF_ERROR(ExpectEnd());
  TOKEND_ASSIGN_OR_RETURN(Statements body, ParseUntil(ends));
  if (leave) {
    Advance();
    TOKEND_RETURN_IF_ERROR(ExpectEnd());
  }
  return body;
}

absl::StatusOr<NodePtr> Parser::ParseStatement() {
  if (Current().Is(Token::Type::kData)) {
    NodePtr data = Make(NodeKind::kData);
    data->constant = Value::String(Current().text, true);
    Advance();
    return data;
  }
  NodePtr output = Make(NodeKind::kOutput);
  Advance();
  output->at = Current().at;
  TOKEND_ASSIGN_OR_RETURN(NodePtr value, ParseTuple(true, false));
  output->args.push_back(std::move(value));
  if (!Current().Is(Token::Type::kOutputEnd)) return Unexpected("the end of the tag");
  Advance();
  return output;
}

absl::StatusOr<NodePtr> Parser::ParseTag() {
  if (!Current().Is(Token::Type::kName)) return Unexpected("the name of a tag");
  if (depth_ >= kMaxSourceDepth) return TemplateFailed(Current().at, "blocks nested too deep");
  ++depth_;
  const std::string tag = Current().text;
  absl::StatusOr<NodePtr> node;
  if (tag == "if") {
    node = ParseIf();
  } else if (tag == "for") {
    node = ParseFor();
  } else if (tag == "set") {
    node = ParseSet();
  } else if (tag == "macro") {
    node = ParseMacro();
  } else if (tag == "call") {
    node = ParseCallBlock();
  } else if (tag == "filter") {
    node = ParseFilterBlock();
  } else if (tag == "with") {
    node = ParseWith();
  } else if (tag == "break" || tag == "continue") {
    node = ParseLoopControl();
  } else if (tag == "generation") {
    node = Make(NodeKind::kScope);
    Advance();
    const int loops = std::exchange(loops_, 0);
    auto body = ParseBody({"endgeneration"}, true);
    loops_ = loops;
    if (body.ok()) {
      (*node)->body = *std::move(body);
    } else {
      node = body.status();
    }
  } else {
    node = TemplateFailed(Current().at, absl::StrCat("unknown or misplaced tag '", tag, "'"));
  }
  --depth_;
  return node;
}

absl::StatusOr<NodePtr> Parser::ParseIf() {
  NodePtr node = Make(NodeKind::kIf);
  Advance();
  TOKEND_ASSIGN_OR_RETURN(NodePtr test, ParseTuple(false, false));
  node->args.push_back(std::move(test));
  TOKEND_ASSIGN_OR_RETURN(node->body, ParseBody({"elif", "else", "endif"}));
  while (AtOneOf({"elif"})) {
    NodePtr elif = Make(NodeKind::kIf);
    Advance();
    TOKEND_ASSIGN_OR_RETURN(NodePtr elif_test, ParseTuple(false, false));
    elif->args.push_back(std::move(elif_test));
    TOKEND_ASSIGN_OR_RETURN(elif->body, ParseBody({"elif", "else", "endif"}));
    node->args.push_back(std::move(elif));
  }
  if (SkipName("else")) {
    TOKEND_ASSIGN_OR_RETURN(node->orelse, ParseBody({"endif"}));
  }
  Advance();
  TOKEND_RETURN_IF_ERROR(ExpectEnd());
  return node;
}

absl::StatusOr<NodePtr> Parser::ParseFor() {
  NodePtr node = Make(NodeKind::kFor);
  Advance();
  TOKEND_ASSIGN_OR_RETURN(NodePtr target, ParseTarget(false));
  TOKEND_RETURN_IF_ERROR(ExpectName("in"));
  TOKEND_ASSIGN_OR_RETURN(NodePtr iterable, ParseTuple(false, false, "recursive"));
  NodePtr test;
  if (SkipName("if")) {
    TOKEND_ASSIGN_OR_RETURN(test, ParseExpression());
  }
  node->flag = SkipName("recursive");
  node->args.push_back(std::move(target));
  node->args.push_back(std::move(iterable));
  node->args.push_back(std::move(test));
  ++loops_;
  auto body = ParseBody({"else", "endfor"});
  --loops_;
  TOKEND_RETURN_IF_ERROR(body.status());
  node->body = *std::move(body);
  if (SkipName("else")) {
    TOKEND_ASSIGN_OR_RETURN(node->orelse, ParseBody({"endfor"}));
  }
  Advance();
  TOKEND_RETURN_IF_ERROR(ExpectEnd());
  return node;
}

absl::StatusOr<NodePtr> Parser::ParseSet() {
  NodePtr node = Make(NodeKind::kSet);
  Advance();
  TOKEND_ASSIGN_OR_RETURN(NodePtr target, ParseTarget(true));
  node->args.push_back(std::move(target));
  if (Skip("=")) {
    TOKEND_ASSIGN_OR_RETURN(NodePtr value, ParseTuple(true, false));
    node->args.push_back(std::move(value));
    TOKEND_RETURN_IF_ERROR(ExpectEnd());
    return node;
  }
  node->kind = NodeKind::kSetBlock;
  NodePtr filters;
  while (Current().IsOperator("|")) {
    TOKEND_ASSIGN_OR_RETURN(filters, ParseFilter(std::move(filters)));
  }
  node->args.push_back(std::move(filters));
  const int loops = std::exchange(loops_, 0);
  auto body = ParseBody({"endset"}, true);
  loops_ = loops;
  TOKEND_RETURN_IF_ERROR(body.status());
  node->body = *std::move(body);
  return node;
}

absl::Status Parser::ParseParameters(Node* macro) {
  TOKEND_RETURN_IF_ERROR(Expect("("));
  bool defaults = false;
  while (!Current().IsOperator(")")) {
    if (!macro->parameters.empty()) TOKEND_RETURN_IF_ERROR(Expect(","));
    const Token& at = Current();
    TOKEND_ASSIGN_OR_RETURN(std::string name, TakeName());
    NodePtr value;
    if (Skip("=")) {
      TOKEND_ASSIGN_OR_RETURN(value, ParseExpression());
      defaults = true;
    } else if (defaults) {
      return TemplateFailed(at.at, "a parameter without a default after one with it");
    }
    macro->parameters.emplace_back(std::move(name), std::move(value));
  }
  return Expect(")");
}

absl::Status Parser::ParseMacroBody(Names ends, Node* macro) {
  macros_.emplace_back();
  const int loops = std::exchange(loops_, 0);
  auto body = ParseBody(ends, true);
  loops_ = loops;
  const MacroUse use = macros_.back();
  macros_.pop_back();
  TOKEND_RETURN_IF_ERROR(body.status());
  macro->body = *std::move(body);
  macro->reads_varargs = use.varargs;
  macro->reads_kwargs = use.kwargs;
  macro->reads_caller = use.caller;
  return absl::OkStatus();
}

absl::StatusOr<NodePtr> Parser::ParseMacro() {
  NodePtr node = Make(NodeKind::kMacro);
  Advance();
  TOKEND_ASSIGN_OR_RETURN(node->name, TakeName());
  TOKEND_RETURN_IF_ERROR(ParseParameters(node.get()));
  TOKEND_RETURN_IF_ERROR(ParseMacroBody({"endmacro"}, node.get()));
  return node;
}

absl::StatusOr<NodePtr> Parser::ParseCallBlock() {
  NodePtr node = Make(NodeKind::kCallBlock);
  Advance();
  if (Current().IsOperator("(")) TOKEND_RETURN_IF_ERROR(ParseParameters(node.get()));
  node->name = "caller";
  const Position at = Current().at;
  TOKEND_ASSIGN_OR_RETURN(NodePtr call, ParseExpression());
  if (call->kind != NodeKind::kCall) return TemplateFailed(at, "wanted a call");
  node->args.push_back(std::move(call));
  TOKEND_RETURN_IF_ERROR(ParseMacroBody({"endcall"}, node.get()));
  return node;
}

absl::StatusOr<NodePtr> Parser::ParseFilterBlock() {
  NodePtr node = Make(NodeKind::kFilterBlock);
  // The tag's name stands where a filter has its bar.
  TOKEND_ASSIGN_OR_RETURN(NodePtr filter, ParseFilter(nullptr));
  while (Current().IsOperator("|")) {
    TOKEND_ASSIGN_OR_RETURN(filter, ParseFilter(std::move(filter)));
  }
  node->args.push_back(std::move(filter));
  const int loops = std::exchange(loops_, 0);
  auto body = ParseBody({"endfilter"}, true);
  loops_ = loops;
  TOKEND_RETURN_IF_ERROR(body.status());
  node->body = *std::move(body);
  return node;
}

absl::StatusOr<NodePtr> Parser::ParseWith() {
  NodePtr node = Make(NodeKind::kWith);
  Advance();
  while (!Current().Is(Token::Type::kBlockEnd)) {
    if (!node->args.empty()) TOKEND_RETURN_IF_ERROR(Expect(","));
    TOKEND_ASSIGN_OR_RETURN(NodePtr target, ParseTarget(false));
    TOKEND_RETURN_IF_ERROR(Expect("="));
    TOKEND_ASSIGN_OR_RETURN(NodePtr value, ParseExpression());
    node->args.push_back(std::move(target));
    node->args.push_back(std::move(value));
  }
  TOKEND_ASSIGN_OR_RETURN(node->body, ParseBody({"endwith"}, true));
  return node;
}

absl::StatusOr<NodePtr> Parser::ParseLoopControl() {
  const bool breaks = Current().text == "break";
  NodePtr node = Make(breaks ? NodeKind::kBreak : NodeKind::kContinue);
  if (loops_ == 0)
    return TemplateFailed(Current().at, absl::StrCat(Current().text, " outside a loop"));
  Advance();
  TOKEND_RETURN_IF_ERROR(ExpectEnd());
  return node;
}

absl::StatusOr<NodePtr> Parser::ParseTarget(bool with_namespace) {
  NodePtr tuple = Make(NodeKind::kTuple);
  const bool in_brackets = Skip("(");
  bool is_tuple = false;
  while (Current().Is(Token::Type::kName) && !Current().IsName("in")) {
    NodePtr target = Make(NodeKind::kName);
    TOKEND_ASSIGN_OR_RETURN(target->name, TakeName());
    if (with_namespace && Skip(".")) {
      target->kind = NodeKind::kNsRef;
      TOKEND_ASSIGN_OR_RETURN(const std::string attribute, TakeName());
      target->constant = Value::String(attribute, true);
    }
    tuple->args.push_back(std::move(target));
    if (!Skip(",")) break;
    is_tuple = true;
  }
  if (in_brackets) TOKEND_RETURN_IF_ERROR(Expect(")"));
  if (tuple->args.empty()) return Unexpected("a name");
  if (!is_tuple) return std::move(tuple->args[0]);
  return tuple;
}

}  // namespace tokend::chat
