// Code points as Python's str sees them. Bytes that are not UTF-8 count as one code point each.
#ifndef TOKEND_CORE_CHAT_UNICODE_H_
#define TOKEND_CORE_CHAT_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tokend::chat {

struct CodePoint {
  uint32_t value = 0;  // of a stray byte: the byte
  size_t size = 0;     // bytes
};

// `text` must not be empty.
CodePoint FirstCodePoint(absl::string_view text);

size_t CountCodePoints(absl::string_view text);

// Byte offsets of all code points and, last, text.size().
std::vector<size_t> CodePointOffsets(absl::string_view text);

void AppendUtf8(uint32_t code_point, std::string* out);

// str.isspace of one code point.
bool IsSpace(uint32_t code_point);
// What ends a line in str.splitlines.
bool IsLineEnd(uint32_t code_point);
// str.isprintable of one code point, exact below U+0370 and for what separates, formats, is
// private or a surrogate; code points that are not assigned count as printable.
bool IsPrintable(uint32_t code_point);

bool IsUpper(uint32_t code_point);
bool IsLower(uint32_t code_point);
bool IsAlpha(uint32_t code_point);
// Simple case mappings, except that sharp s becomes SS as in Python.
void AppendUpper(uint32_t code_point, std::string* out);
void AppendLower(uint32_t code_point, std::string* out);

// Without white space at the ends: [begin, end) of what is left.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};
Range Stripped(absl::string_view text, bool left, bool right);
// The same for the code points that `characters` holds.
Range StrippedOf(absl::string_view text, absl::string_view characters, bool left, bool right);

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_UNICODE_H_
