#include "core/tokenizer/utf8.h"

#include "core/base/check.h"

namespace tokend::tokenizer {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What may follow a lead byte: how many bytes, and the range of the first of them. The ranges keep
// out overlong forms, surrogates and anything beyond U+10FFFF.
struct Continuation {
  size_t count;  // 0: no lead byte
  unsigned char low;
  unsigned char high;
};

Continuation AfterLead(unsigned char lead) {
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {1, 0x80, 0xBF};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};
  if (lead == 0xED) return {2, 0x80, 0x9F};
  if (lead < 0xF0) return {2, 0x80, 0xBF};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead < 0xF4) return {3, 0x80, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Prefix ClassifyUtf8(absl::string_view bytes) {
  TOKEND_CHECK(!bytes.empty());
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (at(0) < 0x80) return {Utf8Prefix::kCodePoint, 1};
  Continuation next = AfterLead(at(0));
  if (next.count == 0) return {Utf8Prefix::kInvalid, 1};
  for (size_t i = 1; i <= next.count; ++i) {
    if (i == bytes.size()) return {Utf8Prefix::kIncomplete, i};
    if (at(i) < next.low || at(i) > next.high) return {Utf8Prefix::kInvalid, i};
    next.low = 0x80;
    next.high = 0xBF;
  }
  return {Utf8Prefix::kCodePoint, next.count + 1};
}

bool IsUtf8(absl::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Prefix prefix = ClassifyUtf8(bytes);
    if (prefix.kind != Utf8Prefix::kCodePoint) return false;
    bytes.remove_prefix(prefix.size);
  }
  return true;
}

std::string ReplaceInvalidUtf8(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Prefix prefix = ClassifyUtf8(bytes);
    const absl::string_view piece =
        prefix.kind == Utf8Prefix::kCodePoint ? bytes.substr(0, prefix.size) : kReplacement;
    text.append(piece.data(), piece.size());
    bytes.remove_prefix(prefix.size);
  }
  return text;
}

}  // namespace tokend::tokenizer
