#ifndef TOKEND_CORE_TOKENIZER_UTF8_H_
#define TOKEND_CORE_TOKENIZER_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace tokend::tokenizer {

// What the front of a byte string is, by table 3-7 of the Unicode standard.
struct Utf8Prefix {
  enum Kind {
    kCodePoint,   // a whole code point
    kInvalid,     // a maximal ill-formed subpart: one U+FFFD
    kIncomplete,  // the string ends inside what may still become a code point
  };
  Kind kind;
  size_t size;  // bytes; at least 1 and at most 4
};

// `bytes` is not empty.
Utf8Prefix ClassifyUtf8(absl::string_view bytes);

bool IsUtf8(absl::string_view bytes);

// Each maximal ill-formed subpart as one U+FFFD, an incomplete end included.
std::string ReplaceInvalidUtf8(absl::string_view bytes);

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_UTF8_H_
