#include "core/chat/template.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/check_names.h"
#include "core/chat/errors.h"
#include "core/chat/interpreter.h"
#include "core/chat/lexer.h"
#include "core/chat/parser.h"

namespace tokend::chat {

absl::StatusOr<std::unique_ptr<const Template>> Template::Parse(absl::string_view source) {
  const std::string normalised = NormalisedSource(source);
  TOKEND_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenise(normalised));
  TOKEND_ASSIGN_OR_RETURN(std::vector<NodePtr> statements,
                          Parser(std::move(tokens)).ParseTemplate());
  TOKEND_RETURN_IF_ERROR(CheckNames(statements));
  return std::unique_ptr<const Template>(new Template(std::move(statements)));
}

absl::StatusOr<Text> Template::Render(const Value& variables, absl::CivilSecond now) const {
  if (!variables.Is(Kind::kDict)) return TemplateFailed({1, 1}, "the variables are no dict");
  return Interpreter(variables.dict(), now).Run(statements_);
}

}  // namespace tokend::chat
