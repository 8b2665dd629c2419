// Changes of whole strings that keep the trust of each byte.
#include <utility>

#include "core/base/status_macros.h"
#include "core/chat/functions.h"
#include "core/chat/unicode.h"

namespace tokend::chat {
namespace {

absl::StatusOr<Text> Mapped(const Text& text, void (*append)(uint32_t, std::string*)) {
  TextBuilder builder;
  const absl::string_view bytes = text.bytes();
  std::string mapped;
  for (size_t at = 0; at < bytes.size() && !builder.overflowed();) {
    const CodePoint point = FirstCodePoint(bytes.substr(at));
    if (point.value >= 0x80 && point.size == 1) {
      builder.Append(text, at, at + 1);  // no UTF-8
    } else {
      mapped.clear();
      append(point.value, &mapped);
      builder.Append(mapped, text.IsTrusted(at));
    }
    at += point.size;
  }
  return builder.Build();
}

absl::string_view Entity(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&#34;";
    case '\'':
      return "&#39;";
    default:
      return "";
  }
}

}  // namespace

absl::StatusOr<Text> ToUpper(const Text& text) { return Mapped(text, AppendUpper); }
absl::StatusOr<Text> ToLower(const Text& text) { return Mapped(text, AppendLower); }

absl::StatusOr<Text> EscapeHtml(const Text& text) {
  TextBuilder builder;
  const absl::string_view bytes = text.bytes();
  for (size_t at = 0; at < bytes.size() && !builder.overflowed(); ++at) {
    const absl::string_view entity = Entity(bytes[at]);
    if (entity.empty()) {
      builder.Append(text, at, at + 1);
    } else {
      builder.Append(entity, text.IsTrusted(at));
    }
  }
  return builder.Build();
}

absl::StatusOr<Text> ReplaceAll(const Text& text, const Text& old, const Text& by, int64_t count) {
  TextBuilder builder;
  const absl::string_view bytes = text.bytes();
  const absl::string_view wanted = old.bytes();
  size_t begin = 0;
  size_t from = 0;  // an empty `old` matches before each code point and at the end
  while (count != 0 && !builder.overflowed()) {
    const size_t at = wanted.empty() ? (from <= bytes.size() ? from : absl::string_view::npos)
                                     : bytes.find(wanted, from);
    if (at == absl::string_view::npos) break;
    builder.Append(text, begin, at);
    builder.Append(by);
    begin = at + wanted.size();
    from = begin;
    if (wanted.empty()) from += at < bytes.size() ? FirstCodePoint(bytes.substr(at)).size : 1;
    if (count > 0) --count;
  }
  builder.Append(text, begin, bytes.size());
  return builder.Build();
}

}  // namespace tokend::chat
