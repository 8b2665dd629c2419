#include "core/chat/python_text.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/limits.h"
#include "core/chat/unicode.h"

namespace tokend::chat {
namespace {

// repr of one code point in a string quoted by `quote`; empty: as it is.
std::string ReprEscape(const CodePoint& point, char quote) {
  const uint32_t c = point.value;
  if (c == static_cast<uint32_t>(quote) || c == '\\') {
    return absl::StrCat("\\", std::string(1, static_cast<char>(c)));
  }
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  if (IsPrintable(c)) return "";
  if (c <= 0xFF) return absl::StrFormat("\\x%02x", c);
  if (c <= 0xFFFF) return absl::StrFormat("\\u%04x", c);
  return absl::StrFormat("\\U%08x", c);
}

void AppendStringRepr(const Text& text, TextBuilder* out) {
  const absl::string_view bytes = text.bytes();
  const bool has_single = bytes.find('\'') != absl::string_view::npos;
  const char quote = has_single && bytes.find('"') == absl::string_view::npos ? '"' : '\'';
  out->Append(absl::string_view(&quote, 1), false);
  for (size_t at = 0; at < bytes.size() && !out->overflowed();) {
    const CodePoint point = FirstCodePoint(bytes.substr(at));
    const std::string escape = ReprEscape(point, quote);
    if (escape.empty()) {
      out->Append(text, at, at + point.size);
    } else {
      out->Append(escape, text.IsTrusted(at));
    }
    at += point.size;
  }
  out->Append(absl::string_view(&quote, 1), false);
}

absl::Status AppendItems(const std::vector<Value>& items, TextBuilder* out, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    TOKEND_RETURN_IF_ERROR(AppendRepr(items[i], out, depth + 1));
  }
  return absl::OkStatus();
}

absl::Status AppendListRepr(const List& list, TextBuilder* out, int depth) {
  switch (list.shape) {
    case List::Shape::kList:
      out->Append("[", false);
      TOKEND_RETURN_IF_ERROR(AppendItems(list.items, out, depth));
      out->Append("]", false);
      return absl::OkStatus();
    case List::Shape::kTuple:
    case List::Shape::kGroup:
      out->Append("(", false);
      TOKEND_RETURN_IF_ERROR(AppendItems(list.items, out, depth));
      out->Append(list.items.size() == 1 ? ",)" : ")", false);
      return absl::OkStatus();
    case List::Shape::kKeys:
    case List::Shape::kValues:
    case List::Shape::kItems: {
      static constexpr absl::string_view kNames[] = {"dict_keys", "dict_values", "dict_items"};
      const auto name = static_cast<size_t>(list.shape) - static_cast<size_t>(List::Shape::kKeys);
      out->Append(absl::StrCat(kNames[name], "(["), false);
      TOKEND_RETURN_IF_ERROR(AppendItems(list.items, out, depth));
      out->Append("])", false);
      return absl::OkStatus();
    }
    case List::Shape::kRange: {
      const int64_t first = list.items.empty() ? 0 : list.items.front().integer();
      const int64_t last = list.items.empty() ? -1 : list.items.back().integer();
      out->Append(absl::StrCat("range(", first, ", ", last + 1, ")"), false);
      return absl::OkStatus();
    }
    case List::Shape::kIterator:
      break;
  }
  out->Append("<generator object>", false);  // Python adds an address
  return absl::OkStatus();
}

absl::Status AppendDictRepr(const Dict& dict, TextBuilder* out, int depth) {
  out->Append("{", false);
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    TOKEND_RETURN_IF_ERROR(AppendRepr(dict.entries[i].first, out, depth + 1));
    out->Append(": ", false);
    TOKEND_RETURN_IF_ERROR(AppendRepr(dict.entries[i].second, out, depth + 1));
  }
  out->Append("}", false);
  return absl::OkStatus();
}

absl::Status AppendNamespaceRepr(const Namespace& space, TextBuilder* out, int depth) {
  out->Append("<Namespace {", false);
  for (size_t i = 0; i < space.attributes.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    AppendStringRepr(Text(space.attributes[i].first, false), out);
    out->Append(": ", false);
    TOKEND_RETURN_IF_ERROR(AppendRepr(space.attributes[i].second, out, depth + 1));
  }
  out->Append("}>", false);
  return absl::OkStatus();
}

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const absl::string_view shortest(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = shortest.find('e');
  std::string digits;
  std::string sign;
  for (char c : shortest.substr(0, mark)) {
    if (c == '-') sign.push_back(c);
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  int exponent = 0;
  const absl::string_view power = shortest.substr(mark + (shortest[mark + 1] == '+' ? 2 : 1));
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  // Python writes an exponent below 1e-4 and from 1e16 on.
  if (exponent < -4 || exponent >= 16) {
    const std::string fraction = digits.size() > 1 ? absl::StrCat(".", digits.substr(1)) : "";
    return absl::StrFormat("%s%c%se%c%02d", sign, digits[0], fraction, exponent < 0 ? '-' : '+',
                           std::abs(exponent));
  }
  if (exponent < 0) {
    return absl::StrCat(sign, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) {
    return absl::StrCat(sign, digits, std::string(whole - digits.size(), '0'), ".0");
  }
  return absl::StrCat(sign, digits.substr(0, whole), ".", digits.substr(whole));
}

absl::Status AppendStr(const Value& value, TextBuilder* out) {
  if (value.Is(Kind::kString)) {
    out->Append(value.text());
    return absl::OkStatus();
  }
  if (value.Is(Kind::kUndefined)) return absl::OkStatus();
  return AppendRepr(value, out);
}

absl::StatusOr<Text> Str(const Value& value) {
  if (value.Is(Kind::kString)) return value.text();
  TextBuilder builder;
  TOKEND_RETURN_IF_ERROR(AppendStr(value, &builder));
  return builder.Build();
}

absl::Status AppendRepr(const Value& value, TextBuilder* out, int depth) {
  if (depth > kMaxNesting) return Problem("values nested too deep to be written out");
  if (out->overflowed()) return absl::OkStatus();
  switch (value.kind()) {
    case Kind::kUndefined:
      out->Append("Undefined", false);
      break;
    case Kind::kNone:
      out->Append("None", value.trusted());
      break;
    case Kind::kBool:
      out->Append(value.boolean() ? "True" : "False", value.trusted());
      break;
    case Kind::kInt:
      out->Append(absl::StrCat(value.integer()), value.trusted());
      break;
    case Kind::kFloat:
      out->Append(FloatText(value.floating()), value.trusted());
      break;
    case Kind::kString:
      AppendStringRepr(value.text(), out);
      break;
    case Kind::kList:
      return AppendListRepr(value.list(), out, depth);
    case Kind::kDict:
      return AppendDictRepr(value.dict(), out, depth);
    case Kind::kNamespace:
      return AppendNamespaceRepr(*value.space(), out, depth);
    case Kind::kCallable:
      out->Append("<function>", false);
      break;
    case Kind::kLoop:
      out->Append("<LoopContext>", false);
      break;
  }
  return absl::OkStatus();
}

}  // namespace tokend::chat
