#ifndef TOKEND_CORE_TOKENIZER_INCREMENTAL_DECODER_H_
#define TOKEND_CORE_TOKENIZER_INCREMENTAL_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/tokenizer/tokenizer.h"

namespace tokend::tokenizer {

// Text that is complete.
struct DecodedText {
  std::string text;  // valid UTF-8, whole code points
  std::string raw;   // the exact bytes that text stands for
  // Some of raw was not UTF-8: text has U+FFFD in its place.
  bool replaced = false;
};

// Turns a stream of tokens into text, never splitting a code point: the bytes of an unfinished
// one wait for the next token. However the bytes are cut into tokens, the texts joined are the
// same, and the raws joined are the bytes of all tokens. One stream, one thread.
class IncrementalDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit IncrementalDecoder(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Adds a token (a valid id; special tokens show as their names) and returns what it completed,
  // which may be nothing.
  DecodedText Feed(int32_t id) { return FeedBytes(tokenizer_->TokenBytes(id)); }
  DecodedText FeedBytes(absl::string_view bytes);

  // The end: what still waits is not UTF-8.
  DecodedText Flush();

  // Bytes of an unfinished code point: 0 to 3.
  size_t pending_bytes() const { return pending_.size(); }

 private:
  const Tokenizer* const tokenizer_;
  std::string pending_;
};

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_INCREMENTAL_DECODER_H_
