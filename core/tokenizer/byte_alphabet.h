#ifndef TOKEND_CORE_TOKENIZER_BYTE_ALPHABET_H_
#define TOKEND_CORE_TOKENIZER_BYTE_ALPHABET_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tokend::tokenizer {

// GPT-2's way to write arbitrary bytes as printable text, used by vocabularies of byte-level BPE:
// the 188 printable bytes of Latin-1 stand for themselves, the n-th other byte for U+0100 + n.
std::string ToByteAlphabet(absl::string_view bytes);

// Absent if a character is not in the alphabet.
std::optional<std::string> FromByteAlphabet(absl::string_view text);

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_BYTE_ALPHABET_H_
