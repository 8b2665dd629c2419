// Tokens to a tree, by Jinja's grammar without what reads files: include, import, extends, block.
#ifndef TOKEND_CORE_CHAT_PARSER_H_
#define TOKEND_CORE_CHAT_PARSER_H_

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/chat/ast.h"
#include "core/chat/lexer.h"

namespace tokend::chat {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // The whole template. Errors: FAILED_PRECONDITION, kTemplateFailed.
  absl::StatusOr<std::vector<NodePtr>> ParseTemplate();

 private:
  using Names = std::initializer_list<absl::string_view>;
  using Statements = std::vector<NodePtr>;

  // parser.cc
  const Token& Current() const { return tokens_[at_]; }
  const Token& Ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Advance() { at_ = std::min(at_ + 1, tokens_.size() - 1); }
  bool Skip(absl::string_view op);
  bool SkipName(absl::string_view name);
  bool AtOneOf(Names names) const;
  absl::Status Expect(absl::string_view op);
  absl::Status ExpectName(absl::string_view name);
  absl::Status ExpectEnd();
  absl::StatusOr<std::string> TakeName();
  absl::Status Unexpected(absl::string_view wanted = "") const;
  NodePtr Make(NodeKind kind) const;

  // parse_statements.cc
  // Up to a tag that begins with one of `ends`, whose name is the current token then; with none,
  // up to the end of the source.
  absl::StatusOr<Statements> ParseUntil(Names ends);
  absl::StatusOr<Statements> ParseBody(Names ends, bool leave = false);
  absl::StatusOr<NodePtr> ParseStatement();
  absl::StatusOr<NodePtr> ParseTag();
  absl::StatusOr<NodePtr> ParseIf();
  absl::StatusOr<NodePtr> ParseFor();
  absl::StatusOr<NodePtr> ParseSet();
  absl::StatusOr<NodePtr> ParseMacro();
  absl::StatusOr<NodePtr> ParseCallBlock();
  absl::StatusOr<NodePtr> ParseFilterBlock();
  absl::StatusOr<NodePtr> ParseWith();
  absl::StatusOr<NodePtr> ParseLoopControl();
  absl::Status ParseParameters(Node* macro);
  absl::Status ParseMacroBody(Names ends, Node* macro);
  absl::StatusOr<NodePtr> ParseTarget(bool with_namespace);

  // parse_expressions.cc
  absl::StatusOr<NodePtr> ParseExpression(bool with_condition = true);
  absl::StatusOr<NodePtr> ParseCondition();
  absl::StatusOr<NodePtr> ParseBinary(int level);
  absl::StatusOr<NodePtr> ParseNot();
  absl::StatusOr<NodePtr> ParseCompare();
  absl::StatusOr<NodePtr> ParseUnary(bool with_filter = true);
  absl::StatusOr<NodePtr> ParsePrimary();
  absl::StatusOr<NodePtr> ParseNameOrConstant();
  // Without brackets around it; `end` is a name that may follow.
  absl::StatusOr<NodePtr> ParseTuple(bool with_condition, bool in_brackets,
                                     absl::string_view end = "");
  absl::StatusOr<NodePtr> ParseList();
  absl::StatusOr<NodePtr> ParseDict();
  absl::StatusOr<NodePtr> ParsePostfix(NodePtr node);
  absl::StatusOr<NodePtr> ParseSubscript(NodePtr node);
  absl::StatusOr<NodePtr> ParseFilters(NodePtr node);
  absl::StatusOr<NodePtr> ParseFilter(NodePtr node);
  absl::StatusOr<NodePtr> ParseTest(NodePtr node);
  absl::StatusOr<NodePtr> ParseCall(NodePtr node);
  absl::Status ParseArguments(Node* call);

  struct MacroUse {
    bool varargs = false;
    bool kwargs = false;
    bool caller = false;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;                 // around the current statement, within its macro
  std::vector<MacroUse> macros_;  // around the current statement
};

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_PARSER_H_
