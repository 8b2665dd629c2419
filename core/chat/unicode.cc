#include "core/chat/unicode.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>

namespace tokend::chat {
namespace {

// Unicode's case mappings come with libc-bin, as this locale, which is read once. Where it is
// missing, ASCII alone has case.
locale_t Unicode() {
  static const locale_t locale = [] {
    const locale_t none = nullptr;
    const locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", none);
    return unicode != none ? unicode : newlocale(LC_CTYPE_MASK, "C", none);
  }();
  return locale;
}

// Before byte `end` of `text`, which is not 0.
CodePoint LastCodePoint(absl::string_view text, size_t end) {
  for (size_t size = std::min<size_t>(4, end); size > 1; --size) {
    const CodePoint point = FirstCodePoint(text.substr(end - size, size));
    if (point.size == size) return point;
  }
  return {static_cast<unsigned char>(text[end - 1]), 1};
}

template <typename Predicate>
Range StripIf(absl::string_view text, bool left, bool right, Predicate strips) {
  Range range{0, text.size()};
  while (left && range.begin < range.end) {
    const CodePoint point = FirstCodePoint(text.substr(range.begin));
    if (!strips(point.value)) break;
    range.begin += point.size;
  }
  while (right && range.begin < range.end) {
    const CodePoint point = LastCodePoint(text, range.end);
    if (!strips(point.value)) break;
    range.end -= point.size;
  }
  return range;
}

}  // namespace

CodePoint FirstCodePoint(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const CodePoint stray{first, 1};
  size_t size = 1;
  uint32_t value = first;
  if (first < 0x80) return stray;
  if (first >= 0xC2 && first < 0xE0) {
    size = 2;
    value = first & 0x1F;
  } else if (first >= 0xE0 && first < 0xF0) {
    size = 3;
    value = first & 0x0F;
  } else if (first >= 0xF0 && first < 0xF5) {
    size = 4;
    value = first & 0x07;
  }
  if (size == 1 || text.size() < size) return stray;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return stray;
    value = value << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (size == 3 && value < 0x800) || (size == 4 && value < 0x10000);
  if (overlong || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return stray;
  return {value, size};
}

size_t CountCodePoints(absl::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += FirstCodePoint(text.substr(at)).size;
  return count;
}

std::vector<size_t> CodePointOffsets(absl::string_view text) {
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); at += FirstCodePoint(text.substr(at)).size) {
    offsets.push_back(at);
  }
  offsets.push_back(text.size());
  return offsets;
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  const auto push = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | code_point >> 18);
    push(0x80 | (code_point >> 12 & 0x3F));
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

bool IsSpace(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsLineEnd(uint32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool IsPrintable(uint32_t c) {
  if (c == ' ') return true;
  const bool control = c < 32 || (c >= 0x7F && c < 0xA0);
  const bool format = c == 0xAD || (c >= 0x600 && c <= 0x605) || c == 0x61C || c == 0x6DD ||
                      c == 0x70F || c == 0x180E || (c >= 0x200B && c <= 0x200F) ||
                      (c >= 0x202A && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
                      (c >= 0xFFF0 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE0FFF);
  const bool unusable = (c >= 0xD800 && c <= 0xF8FF) || c >= 0xF0000 || (c & 0xFFFE) == 0xFFFE;
  return !IsSpace(c) && !control && !format && !unusable;
}

bool IsUpper(uint32_t c) { return iswupper_l(static_cast<wint_t>(c), Unicode()) != 0; }
bool IsLower(uint32_t c) { return iswlower_l(static_cast<wint_t>(c), Unicode()) != 0; }
bool IsAlpha(uint32_t c) { return iswalpha_l(static_cast<wint_t>(c), Unicode()) != 0; }

void AppendUpper(uint32_t c, std::string* out) {
  if (c == 0xDF) {
    out->append("SS");
  } else {
    AppendUtf8(towupper_l(static_cast<wint_t>(c), Unicode()), out);
  }
}

void AppendLower(uint32_t c, std::string* out) {
  AppendUtf8(towlower_l(static_cast<wint_t>(c), Unicode()), out);
}

Range Stripped(absl::string_view text, bool left, bool right) {
  return StripIf(text, left, right, IsSpace);
}

Range StrippedOf(absl::string_view text, absl::string_view characters, bool left, bool right) {
  std::vector<uint32_t> points;
  for (size_t at = 0; at < characters.size();) {
    const CodePoint point = FirstCodePoint(characters.substr(at));
    points.push_back(point.value);
    at += point.size;
  }
  std::sort(points.begin(), points.end());
  return StripIf(text, left, right,
                 [&](uint32_t c) { return std::binary_search(points.begin(), points.end(), c); });
}

}  // namespace tokend::chat
