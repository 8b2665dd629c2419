#ifndef TOKEND_CORE_TOKENIZER_VOCABULARY_H_
#define TOKEND_CORE_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/gguf/file.h"

namespace tokend::tokenizer {

// GGUF's tokenizer.ggml.token_type numbers.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct Token {
  std::string bytes;
  TokenType type = TokenType::kNormal;
  // Control or unknown, or a user-defined one whose name is that of a control token: of the form
  // "<|...|>", or one that is known to end a text or a turn.
  bool special = false;
  bool end_of_text = false;
  // Plain text: what merging may arrive at.
  bool mergeable = false;
};

// How SentencePiece writes a space in a token: U+2581.
inline constexpr absl::string_view kEscapedSpace = "\xE2\x96\x81";

// U+2581 as spaces.
std::string UnescapeSpaces(absl::string_view text);

// The tokens of a model file: their bytes, kinds and roles. Immutable once loaded.
class Vocabulary {
 public:
  // Reads tokenizer.ggml.tokens, .token_type and the ..._token_id keys; the text of normal tokens
  // is in the byte alphabet. Errors: those of gguf/errors.h.
  static absl::StatusOr<Vocabulary> LoadByteLevel(const gguf::File& file);
  // The same; the text of tokens has U+2581 for a space, and BOS and EOS are 1 and 2 where the
  // file does not say and those are special.
  static absl::StatusOr<Vocabulary> LoadSentencePiece(const gguf::File& file);

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  const Token& operator[](int32_t id) const { return tokens_[static_cast<size_t>(id)]; }

  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  // Ascending.
  const std::vector<int32_t>& end_of_text_ids() const { return end_of_text_ids_; }

 private:
  enum class Writing { kByteLevel, kSentencePiece };
  static absl::StatusOr<Token> MakeToken(size_t id, absl::string_view text, int32_t type,
                                         Writing writing);
  absl::Status LoadTokens(const gguf::File& file, Writing writing);
  absl::Status LoadRoles(const gguf::File& file, Writing writing);
  // `fallback`, if it is special, for a key that is not there.
  absl::StatusOr<std::optional<int32_t>> ReadRole(const gguf::File& file, absl::string_view name,
                                                  std::optional<int32_t> fallback) const;

  std::vector<Token> tokens_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  std::vector<int32_t> end_of_text_ids_;
};

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_VOCABULARY_H_
