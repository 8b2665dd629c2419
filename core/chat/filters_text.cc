// Filters of one value: strings, numbers, JSON.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/interpreter.h"
#include "core/chat/python_text.h"
#include "core/chat/split.h"
#include "core/chat/unicode.h"

namespace tokend::chat {
namespace {

// A filter that is a string method without arguments, of any value's text.
template <typename F>
absl::StatusOr<Value> OnText(absl::string_view name, const Value& input, const Arguments& arguments,
                             F change) {
  TOKEND_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
  TOKEND_ASSIGN_OR_RETURN(const Text text, Str(input));
  TOKEND_ASSIGN_OR_RETURN(Text changed, change(text));
  return Value::String(std::move(changed)).WithMarkup(input.markup());
}

absl::StatusOr<Value> Upper(Interpreter&, const Value& input, const Arguments& arguments) {
  return OnText("upper", input, arguments, ToUpper);
}

absl::StatusOr<Value> Lower(Interpreter&, const Value& input, const Arguments& arguments) {
  return OnText("lower", input, arguments, ToLower);
}

absl::StatusOr<Value> Capitalize(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const Text text, Str(input));
  return CallStringMethod(text, "capitalize", arguments);
}

// Words begin after white space, hyphens and opening brackets.
absl::StatusOr<Value> Title(Interpreter&, const Value& input, const Arguments& arguments) {
  return OnText("title", input, arguments, [](const Text& text) -> absl::StatusOr<Text> {
    TextBuilder builder;
    bool begins = true;
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = FirstCodePoint(text.bytes().substr(at));
      const Text one = text.Sub(at, at + point.size);
      TOKEND_ASSIGN_OR_RETURN(const Text changed, begins ? ToUpper(one) : ToLower(one));
      builder.Append(changed);
      const uint32_t c = point.value;
      begins = IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
      at += point.size;
    }
    return builder.Build();
  });
}

absl::StatusOr<Value> Trim(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const Text text, Str(input));
  TOKEND_ASSIGN_OR_RETURN(Value trimmed, CallStringMethod(text, "strip", arguments));
  return std::move(trimmed).WithMarkup(input.markup());
}

absl::StatusOr<Value> String(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("string", arguments, {}).status());
  if (input.Is(Kind::kString)) return input;
  TOKEND_ASSIGN_OR_RETURN(Text text, Str(input));
  return Value::String(std::move(text));
}

absl::StatusOr<Value> Safe(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("safe", arguments, {}).status());
  TOKEND_ASSIGN_OR_RETURN(Text text, Str(input));
  return Value::String(std::move(text)).WithMarkup(true);
}

absl::StatusOr<Value> Escape(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("escape", arguments, {}).status());
  if (input.markup()) return input;
  TOKEND_ASSIGN_OR_RETURN(const Text text, Str(input));
  TOKEND_ASSIGN_OR_RETURN(Text escaped, EscapeHtml(text));
  return Value::String(std::move(escaped)).WithMarkup(true);
}

absl::StatusOr<Value> Replace(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("replace", arguments, {"old", "new", "count"}, 2));
  TOKEND_ASSIGN_OR_RETURN(const Text text, Str(input));
  TOKEND_ASSIGN_OR_RETURN(const Text old, Str(*bound[0]));
  TOKEND_ASSIGN_OR_RETURN(const Text by, Str(*bound[1]));
  TOKEND_ASSIGN_OR_RETURN(const int64_t count, IntegerOr(bound[2], -1));
  TOKEND_ASSIGN_OR_RETURN(Text replaced, ReplaceAll(text, old, by, count));
  return Value::String(std::move(replaced));
}

absl::StatusOr<Value> Indent(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("indent", arguments, {"width", "first", "blank"}));
  TOKEND_ASSIGN_OR_RETURN(const Text text, StringOf(input));
  Text indent;
  if (bound[0] != nullptr && bound[0]->Is(Kind::kString)) {
    indent = bound[0]->text();
  } else {
    TOKEND_ASSIGN_OR_RETURN(const int64_t width, IntegerOr(bound[0], 4));
    TextBuilder spaces;
    spaces.Repeat(Text(" ", true), static_cast<size_t>(std::max<int64_t>(0, width)));
    TOKEND_ASSIGN_OR_RETURN(indent, spaces.Build());
  }
  const bool blank = TruthOr(bound[2], false);
  // A last newline stays, an empty string is one empty line.
  TextBuilder with_newline;
  with_newline.Append(text);
  with_newline.Append("\n", true);
  TOKEND_ASSIGN_OR_RETURN(const Text all, with_newline.Build());
  const std::vector<Text> lines = SplitLines(all, false);
  TextBuilder builder;
  if (TruthOr(bound[1], false)) builder.Append(indent);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) builder.Append("\n", true);
    if (i > 0 && (blank || !lines[i].empty())) builder.Append(indent);
    builder.Append(lines[i]);
  }
  TOKEND_ASSIGN_OR_RETURN(Text indented, builder.Build());
  return Value::String(std::move(indented)).WithMarkup(input.markup());
}

absl::StatusOr<Value> ToJson(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(
      const auto bound,
      Bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonOptions options;
  options.ensure_ascii = TruthOr(bound[0], false);
  if (bound[1] != nullptr && bound[1]->Is(Kind::kString)) {
    options.indent = bound[1]->text();
  } else if (bound[1] != nullptr && !bound[1]->Is(Kind::kNone)) {
    TOKEND_ASSIGN_OR_RETURN(const int64_t width, IntegerOr(bound[1], 0));
    TextBuilder spaces;
    spaces.Repeat(Text(" ", true), static_cast<size_t>(std::max<int64_t>(0, width)));
    TOKEND_ASSIGN_OR_RETURN(options.indent, spaces.Build());
  }
  options.item_separator = Text(options.indent.has_value() ? "," : ", ", false);
  options.key_separator = Text(": ", false);
  if (bound[2] != nullptr && !bound[2]->Is(Kind::kNone)) {
    TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> separators, Elements(*bound[2]));
    if (separators.size() != 2) return Problem("separators must be two strings");
    TOKEND_ASSIGN_OR_RETURN(options.item_separator, StringOf(separators[0]));
    TOKEND_ASSIGN_OR_RETURN(options.key_separator, StringOf(separators[1]));
  }
  options.sort_keys = TruthOr(bound[3], false);
  TextBuilder builder;
  TOKEND_RETURN_IF_ERROR(AppendJson(input, options, &builder));
  TOKEND_ASSIGN_OR_RETURN(Text text, builder.Build());
  return Value::String(std::move(text));
}

absl::StatusOr<Value> Default(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound,
                          Bind("default", arguments, {"default_value", "boolean"}));
  const bool replaces = input.Is(Kind::kUndefined) || (TruthOr(bound[1], false) && !IsTrue(input));
  if (!replaces) return input;
  return bound[0] == nullptr ? Value::String("", true) : *bound[0];
}

absl::StatusOr<Value> Int(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("int", arguments, {"default", "base"}));
  TOKEND_ASSIGN_OR_RETURN(const int64_t base, IntegerOr(bound[1], 10));
  const Value fallback = bound[0] == nullptr ? Value::Int(0) : *bound[0];
  if (input.Is(Kind::kUndefined)) return Problem(input.why());
  if (input.IsInteger()) return Value::Int(input.integer()).WithTrust(input.trusted());
  if (base < 2 || base > 36) return Problem("a base that is not supported");
  double number = 0;
  if (input.Is(Kind::kFloat)) {
    number = input.floating();
  } else if (input.Is(Kind::kString)) {
    absl::string_view text = input.text().bytes();
    const Range range = Stripped(text, true, true);
    text = text.substr(range.begin, range.end - range.begin);
    if (!text.empty() && text[0] == '+') text.remove_prefix(1);
    int64_t integer = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), integer, static_cast<int>(base));
    if (error == std::errc() && end == text.data() + text.size()) {
      return Value::Int(integer).WithTrust(false);
    }
    if (!absl::SimpleAtod(text, &number)) return fallback;
  } else {
    return fallback;
  }
  if (!(std::fabs(number) < 9.2e18)) return fallback;
  return Value::Int(static_cast<int64_t>(number)).WithTrust(input.trusted());
}

absl::StatusOr<Value> Float(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("float", arguments, {"default"}));
  if (input.Is(Kind::kUndefined)) return Problem(input.why());
  if (input.IsNumber()) return Value::Float(input.number()).WithTrust(input.trusted());
  double number = 0;
  if (input.Is(Kind::kString) && absl::SimpleAtod(input.text().bytes(), &number)) {
    return Value::Float(number).WithTrust(false);
  }
  return bound[0] == nullptr ? Value::Float(0.0) : *bound[0];
}

absl::StatusOr<Value> Abs(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("abs", arguments, {}).status());
  if (!input.IsNumber()) return Problem(absl::StrCat("abs of '", TypeName(input), "'"));
  if (input.Is(Kind::kFloat)) {
    return Value::Float(std::fabs(input.floating())).WithTrust(input.trusted());
  }
  if (input.integer() >= 0) return Value::Int(input.integer()).WithTrust(input.trusted());
  return Operate("-", Value::Int(0), input);
}

absl::StatusOr<Value> Round(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("round", arguments, {"precision", "method"}));
  TOKEND_ASSIGN_OR_RETURN(const int64_t precision, IntegerOr(bound[0], 0));
  Text method("common", true);
  if (bound[1] != nullptr) {
    TOKEND_ASSIGN_OR_RETURN(method, StringOf(*bound[1]));
  }
  if (!input.IsNumber()) return Problem(absl::StrCat("round of '", TypeName(input), "'"));
  if (std::abs(precision) > 300) return Problem("a precision that is not supported");
  const bool common = method.bytes() == "common";
  if (common && input.IsInteger() && precision >= 0) return input;
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.number() * scale;
  double rounded = 0;
  if (common) {
    // To even, as Python does it.
    rounded = std::nearbyint(scaled);
  } else if (method.bytes() == "ceil") {
    rounded = std::ceil(scaled);
  } else if (method.bytes() == "floor") {
    rounded = std::floor(scaled);
  } else {
    return Problem("method must be common, ceil or floor");
  }
  return Value::Float(rounded / scale).WithTrust(input.trusted());
}

absl::StatusOr<Value> Format(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const Text text, Str(input));
  TOKEND_ASSIGN_OR_RETURN(const Value values, MakeList(arguments.positional, List::Shape::kTuple));
  return FormatPercent(text, values);
}

absl::StatusOr<Value> Center(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const Text text, Str(input));
  Arguments width = arguments;
  if (width.positional.empty() && width.named.empty()) width.positional = {Value::Int(80)};
  return CallStringMethod(text, "center", width);
}

}  // namespace

Filter FindTextFilter(absl::string_view name) {
  static const auto* const filters = new absl::flat_hash_map<absl::string_view, Filter>({
      {"upper", Upper},     {"lower", Lower},   {"capitalize", Capitalize},
      {"title", Title},     {"trim", Trim},     {"string", String},
      {"safe", Safe},       {"escape", Escape}, {"e", Escape},
      {"replace", Replace}, {"indent", Indent}, {"tojson", ToJson},
      {"default", Default}, {"d", Default},     {"int", Int},
      {"float", Float},     {"abs", Abs},       {"round", Round},
      {"format", Format},   {"center", Center},
  });
  const auto found = filters->find(name);
  return found == filters->end() ? nullptr : found->second;
}

}  // namespace tokend::chat
