#ifndef TOKEND_CORE_TOKENIZER_TOKENIZER_H_
#define TOKEND_CORE_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/gguf/file.h"
#include "core/tokenizer/vocabulary.h"

namespace tokend::tokenizer {

class SpecialMatcher;
class TextEncoder;

struct EncodeOptions {
  // Put the model's BOS in front, its EOS behind: each only if the model uses one.
  bool add_bos = false;
  bool add_eos = false;
  // Read the names of special tokens in the text as those tokens. Never for text that a user wrote.
  bool parse_special = false;
  // Nothing is in front of the text: SentencePiece then puts a space there, if the model has it so.
  bool at_start = true;
};

// Text to token ids and back, from a model file's own metadata: byte-level BPE, or SentencePiece's
// byte pairs. Any bytes can be encoded, and TokenBytes of the ids, joined, are the same bytes
// again; with SentencePiece, U+2581 is a space, and models that have it so put a space in front of
// the text and behind every token that is read as a whole. Immutable and thread-safe. Keeps nothing
// of the file.
class Tokenizer {
 public:
  // Errors: those of gguf/errors.h; a model or pre-tokeniser that is not known is UNIMPLEMENTED
  // and the message lists the known ones.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const gguf::File& file);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // `text`: any bytes; those that are not UTF-8 become pieces of their own. Time is n log n in the
  // longest piece, else linear. Errors: INVALID_ARGUMENT, "text", for a byte that the vocabulary
  // has no token for (SmolLM2 lacks six control characters and some bytes that are never in
  // UTF-8). Nothing stands in for it: the model's unknown token would end the text.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              const EncodeOptions& options = {}) const;

  int32_t vocabulary_size() const { return vocabulary_.size(); }
  bool IsValid(int32_t id) const { return id >= 0 && id < vocabulary_size(); }

  // The next four take valid ids only.

  // The exact bytes a token stands for; a special token's are its name, e.g. "<|im_end|>".
  absl::string_view TokenBytes(int32_t id) const { return vocabulary_[id].bytes; }
  // Control and unknown tokens: those that no text may become unless parse_special says so.
  bool IsSpecial(int32_t id) const { return vocabulary_[id].special; }
  // Those, and user-defined ones: read in text before anything is merged.
  bool IsReadAsWhole(int32_t id) const {
    return IsSpecial(id) || vocabulary_[id].type == TokenType::kUserDefined;
  }
  // Whatever ends a text: EOS, end of turn, end of message, and special tokens known by name to
  // do so.
  bool IsEndOfText(int32_t id) const { return vocabulary_[id].end_of_text; }
  const std::vector<int32_t>& end_of_text_ids() const { return vocabulary_.end_of_text_ids(); }

  // The text of all: what Encode made of, with at_start, these ids. That is RawBytes without the
  // spaces that Encode puts in. INVALID_ARGUMENT, "token_ids", for an id outside the vocabulary.
  absl::StatusOr<std::string> Detokenize(absl::Span<const int32_t> ids, bool skip_special) const;

  // TokenBytes of all, joined: for ids from within a text. Errors as above.
  absl::StatusOr<std::string> RawBytes(absl::Span<const int32_t> ids) const;

  // By its exact name.
  std::optional<int32_t> FindSpecial(absl::string_view name) const;

  std::optional<int32_t> bos_id() const { return vocabulary_.bos_id(); }
  std::optional<int32_t> eos_id() const { return vocabulary_.eos_id(); }
  // Whether EncodeOptions' add_bos and add_eos have an effect.
  bool uses_bos() const { return add_bos_; }
  bool uses_eos() const { return add_eos_; }
  // Whether EncodeOptions' at_start has an effect: the tokens then depend on what is in front.
  bool marks_start() const;

 private:
  explicit Tokenizer(Vocabulary vocabulary);

  Vocabulary vocabulary_;
  std::unique_ptr<const TextEncoder> encoder_;
  std::unique_ptr<const SpecialMatcher> specials_;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_TOKENIZER_H_
