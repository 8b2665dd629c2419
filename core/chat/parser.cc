#include "core/chat/parser.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tokend::chat {

bool Parser::Skip(absl::string_view op) {
  if (!Current().IsOperator(op)) return false;
  Advance();
  return true;
}

bool Parser::SkipName(absl::string_view name) {
  if (!Current().IsName(name)) return false;
  Advance();
  return true;
}

bool Parser::AtOneOf(Names names) const {
  return Current().Is(Token::Type::kName) &&
         std::find(names.begin(), names.end(), Current().text) != names.end();
}

absl::Status Parser::Expect(absl::string_view op) {
  return Skip(op) ? absl::OkStatus() : Unexpected(absl::StrCat("'", op, "'"));
}

absl::Status Parser::ExpectName(absl::string_view name) {
  return SkipName(name) ? absl::OkStatus() : Unexpected(absl::StrCat("'", name, "'"));
}

absl::Status Parser::ExpectEnd() {
  if (!Current().Is(Token::Type::kBlockEnd)) return Unexpected("the end of the tag");
  Advance();
  return absl::OkStatus();
}

absl::StatusOr<std::string> Parser::TakeName() {
  if (!Current().Is(Token::Type::kName)) return Unexpected("a name");
  std::string name = Current().text;
  Advance();
  return name;
}

absl::Status Parser::Unexpected(absl::string_view wanted) const {
  const Token& token = Current();
  std::string what;
  switch (token.type) {
    case Token::Type::kData:
    case Token::Type::kBlockBegin:
    case Token::Type::kOutputBegin:
    case Token::Type::kEnd:
      what = "the end of the template";
      break;
    case Token::Type::kBlockEnd:
    case Token::Type::kOutputEnd:
      what = "the end of the tag";
      break;
    case Token::Type::kInt:
    case Token::Type::kFloat:
      what = "a number";
      break;
    case Token::Type::kString:
      what = "a string";
      break;
    case Token::Type::kName:
    case Token::Type::kOperator:
      what = absl::StrCat("'", token.text, "'");
      break;
  }
  return TemplateFailed(
      token.at, absl::StrCat("unexpected ", what, wanted.empty() ? "" : "; wanted ", wanted));
}

NodePtr Parser::Make(NodeKind kind) const {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  node->at = Current().at;
  return node;
}

absl::StatusOr<std::vector<NodePtr>> Parser::ParseTemplate() {
  TOKEND_ASSIGN_OR_RETURN(Statements statements, ParseUntil({}));
  return statements;
}

}  // namespace tokend::chat
