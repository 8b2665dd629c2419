#include "core/tokenizer/jinja_literals.h"

namespace tokend::tokenizer {
namespace {

char Unescaped(char escaped) {
  switch (escaped) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    default:
      return escaped;  // quotes and the backslash itself
  }
}

// `source` begins behind the opening quote. Returns how much of it the literal takes, closing quote
// included; 0: it has no end.
size_t ReadLiteral(absl::string_view source, char quote, std::string* value) {
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == quote) return i + 1;
    if (source[i] == '\\' && i + 1 < source.size()) {
      value->push_back(Unescaped(source[++i]));
    } else {
      value->push_back(source[i]);
    }
  }
  return 0;
}

// `source` begins behind "{{" or "{%". Returns what follows the block.
absl::string_view ReadBlock(absl::string_view source, absl::string_view end,
                            std::vector<std::string>* literals) {
  while (!source.empty() && source.substr(0, end.size()) != end) {
    const char c = source.front();
    source.remove_prefix(1);
    if (c != '\'' && c != '"') continue;
    std::string value;
    const size_t size = ReadLiteral(source, c, &value);
    if (size == 0) return {};
    literals->push_back(std::move(value));
    source.remove_prefix(size);
  }
  return source;
}

}  // namespace

std::vector<std::string> JinjaStringLiterals(absl::string_view source) {
  std::vector<std::string> literals;
  while (source.size() >= 2) {
    const absl::string_view opening = source.substr(0, 2);
    if (opening == "{#") {
      const size_t end = source.find("#}", 2);
      if (end == absl::string_view::npos) break;
      source.remove_prefix(end + 2);
    } else if (opening == "{{" || opening == "{%") {
      source = ReadBlock(source.substr(2), opening == "{{" ? "}}" : "%}", &literals);
    } else {
      source.remove_prefix(1);
    }
  }
  return literals;
}

}  // namespace tokend::tokenizer
