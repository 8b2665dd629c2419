// Python's two ways to format, without access to attributes.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/limits.h"
#include "core/chat/python_text.h"
#include "core/chat/unicode.h"

namespace tokend::chat {
namespace {

// [[fill]align][sign][0][width][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';
  int width = 0;
  int precision = -1;
  char type = '\0';
};

// Longer numbers in a format are nobody's.
constexpr int kMaxFieldWidth = 4096;

absl::StatusOr<int> ReadNumber(absl::string_view* text) {
  int number = 0;
  while (!text->empty() && absl::ascii_isdigit(static_cast<unsigned char>(text->front()))) {
    number = number * 10 + (text->front() - '0');
    if (number > kMaxFieldWidth) return Problem("a format that is too wide");
    text->remove_prefix(1);
  }
  return number;
}

absl::StatusOr<Spec> ParseSpec(absl::string_view text) {
  Spec spec;
  const auto is_align = [&](size_t at) {
    return at < text.size() && absl::StrContains("<>^=", text.substr(at, 1));
  };
  const size_t fill = text.empty() ? 0 : FirstCodePoint(text).size;
  if (!text.empty() && is_align(fill)) {
    spec.fill = std::string(text.substr(0, fill));
    spec.align = text[fill];
    text.remove_prefix(fill + 1);
  } else if (is_align(0)) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty() && absl::StrContains("+- ", text.substr(0, 1))) {
    spec.sign = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty() && text[0] == '0') {
    if (spec.align == '\0') {
      spec.fill.assign(1, '0');
      spec.align = '=';
    }
    text.remove_prefix(1);
  }
  TOKEND_ASSIGN_OR_RETURN(spec.width, ReadNumber(&text));
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    TOKEND_ASSIGN_OR_RETURN(spec.precision, ReadNumber(&text));
  }
  if (!text.empty()) {
    spec.type = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty()) return Problem("an unknown format");
  return spec;
}

// The digits of a number, without its sign.
absl::StatusOr<std::string> Digits(const Value& value, const Spec& spec) {
  if (value.IsInteger() &&
      absl::StrContains(absl::string_view("\0dxXob", 6), std::string(1, spec.type))) {
    const int64_t number = value.integer();
    const uint64_t size =
        number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    if (spec.type == 'x') return absl::StrFormat("%x", size);
    if (spec.type == 'X') return absl::StrFormat("%X", size);
    if (spec.type == 'o') return absl::StrFormat("%o", size);
    if (spec.type != 'b') return absl::StrCat(size);
    std::string bits;
    for (uint64_t rest = size; rest != 0 || bits.empty(); rest /= 2) bits += rest % 2 ? '1' : '0';
    std::reverse(bits.begin(), bits.end());
    return bits;
  }
  const double size = std::fabs(value.number());
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case '\0':
      if (spec.precision < 0) return FloatText(size);
      return absl::StrFormat("%.*g", std::max(1, precision), size);
    case 'f':
    case 'F':
      return absl::StrFormat("%.*f", precision, size);
    case 'e':
      return absl::StrFormat("%.*e", precision, size);
    case 'g':
      return absl::StrFormat("%.*g", std::max(1, precision), size);
    case '%':
      return absl::StrFormat("%.*f%%", precision, size * 100);
    default:
      return Problem("an unknown format of a number");
  }
}

void Pad(const Text& sign, const Text& body, char align, const Spec& spec, TextBuilder* out) {
  const size_t size = CountCodePoints(sign.bytes()) + CountCodePoints(body.bytes());
  const size_t width = static_cast<size_t>(spec.width);
  const size_t padding = width > size ? width - size : 0;
  const size_t before = align == '>' || align == '=' ? padding : (align == '^' ? padding / 2 : 0);
  const Text fill(spec.fill, false);
  if (align == '=') out->Append(sign);
  out->Repeat(fill, before);
  if (align != '=') out->Append(sign);
  out->Append(body);
  out->Repeat(fill, padding - before);
}

absl::Status AppendFormatted(const Value& value, const Spec& spec, TextBuilder* out) {
  const bool as_number = value.IsNumber() && !(value.Is(Kind::kBool) && spec.type == '\0');
  if (as_number && spec.type != 's') {
    TOKEND_ASSIGN_OR_RETURN(std::string digits, Digits(value, spec));
    const bool negative = std::signbit(value.number()) && value.number() != 0;
    std::string sign;
    if (negative) {
      sign.push_back('-');
    } else if (spec.sign != '-') {
      sign.push_back(spec.sign);
    }
    Pad(Text(std::move(sign), value.trusted()), Text(std::move(digits), value.trusted()),
        spec.align == '\0' ? '>' : spec.align, spec, out);
    return absl::OkStatus();
  }
  if (spec.type != '\0' && spec.type != 's') return Problem("an unknown format of a string");
  TOKEND_ASSIGN_OR_RETURN(Text text, Str(value));
  if (spec.precision >= 0) {
    const std::vector<size_t> offsets = CodePointOffsets(text.bytes());
    text = text.Sub(
        0, offsets[std::min<size_t>(static_cast<size_t>(spec.precision), offsets.size() - 1)]);
  }
  Pad(Text(), text, spec.align == '\0' || spec.align == '=' ? '<' : spec.align, spec, out);
  return absl::OkStatus();
}

// The argument that a field between braces names.
absl::StatusOr<Value> FieldValue(absl::string_view name, const Arguments& arguments,
                                 size_t* automatic) {
  size_t index = 0;
  if (name.empty()) {
    index = (*automatic)++;
  } else if (!absl::SimpleAtoi(name, &index)) {
    for (const auto& [key, value] : arguments.named) {
      if (key == name) return value;
    }
    return Problem(absl::StrCat("format has no argument '", name, "'"));
  }
  if (index >= arguments.positional.size()) return Problem("format has too few arguments");
  return arguments.positional[index];
}

absl::Status AppendField(absl::string_view field, const Arguments& arguments, size_t* automatic,
                         TextBuilder* out) {
  const size_t colon = std::min(field.find(':'), field.size());
  absl::string_view name = field.substr(0, colon);
  TOKEND_ASSIGN_OR_RETURN(const Spec spec,
                          ParseSpec(colon < field.size() ? field.substr(colon + 1) : ""));
  const size_t mark = name.find('!');
  const absl::string_view conversion = mark == absl::string_view::npos ? "" : name.substr(mark + 1);
  name = name.substr(0, mark);
  TOKEND_ASSIGN_OR_RETURN(Value value, FieldValue(name, arguments, automatic));
  if (conversion == "r") {
    TextBuilder repr;
    TOKEND_RETURN_IF_ERROR(AppendRepr(value, &repr));
    TOKEND_ASSIGN_OR_RETURN(Text text, repr.Build());
    value = Value::String(std::move(text));
  } else if (conversion == "s") {
    TOKEND_ASSIGN_OR_RETURN(Text text, Str(value));
    value = Value::String(std::move(text));
  } else if (!conversion.empty()) {
    return Problem("an unknown conversion in a format");
  }
  return AppendFormatted(value, spec, out);
}

}  // namespace

absl::StatusOr<Value> FormatBraces(const Text& format, const Arguments& arguments) {
  const absl::string_view bytes = format.bytes();
  TextBuilder out;
  size_t automatic = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.Append(format, at, brace);
    if (brace == bytes.size()) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      out.Append(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const size_t close = bytes.find('}', brace);
    if (bytes[brace] == '}' || close == absl::string_view::npos) {
      return Problem("a single brace in a format");
    }
    TOKEND_RETURN_IF_ERROR(
        AppendField(bytes.substr(brace + 1, close - brace - 1), arguments, &automatic, &out));
    at = close + 1;
  }
  TOKEND_ASSIGN_OR_RETURN(Text text, out.Build());
  return Value::String(std::move(text));
}

absl::StatusOr<Value> FormatPercent(const Text& format, const Value& arguments) {
  const bool is_tuple = arguments.Is(Kind::kList) && arguments.list().shape == List::Shape::kTuple;
  const std::vector<Value> values =
      is_tuple ? arguments.list().items : std::vector<Value>{arguments};
  const absl::string_view bytes = format.bytes();
  TextBuilder out;
  size_t used = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.Append(format, at, percent);
    if (percent == bytes.size()) break;
    size_t end = percent + 1;
    while (end < bytes.size() && absl::StrContains("0123456789.-+ ", bytes.substr(end, 1))) ++end;
    if (end == bytes.size()) return Problem("incomplete format");
    at = end + 1;
    if (bytes[end] == '%') {
      out.Append(format, end, end + 1);
      continue;
    }
    if (used >= values.size()) return Problem("not enough arguments for format string");
    absl::string_view options = bytes.substr(percent + 1, end - percent - 1);
    const bool left = absl::StartsWith(options, "-");
    if (left) options.remove_prefix(1);
    TOKEND_ASSIGN_OR_RETURN(Spec spec, ParseSpec(options));
    spec.align = left ? '<' : (spec.align == '\0' ? '>' : spec.align);
    spec.type = bytes[end] == 'i' ? 'd' : bytes[end];
    Value value = values[used++];
    if (spec.type == 'd' && value.Is(Kind::kFloat) && std::fabs(value.floating()) < 9e18) {
      value = Value::Int(static_cast<int64_t>(value.floating())).WithTrust(value.trusted());
    }
    if (spec.type == 'r') {
      TextBuilder repr;
      TOKEND_RETURN_IF_ERROR(AppendRepr(value, &repr));
      TOKEND_ASSIGN_OR_RETURN(Text text, repr.Build());
      value = Value::String(std::move(text));
      spec.type = 's';
    }
    TOKEND_RETURN_IF_ERROR(AppendFormatted(value, spec, &out));
  }
  if (is_tuple && used < values.size()) return Problem("not all arguments converted");
  if (!is_tuple && used == 0 && !arguments.Is(Kind::kDict)) {
    return Problem("not all arguments converted");
  }
  TOKEND_ASSIGN_OR_RETURN(Text text, out.Build());
  return Value::String(std::move(text));
}

}  // namespace tokend::chat
