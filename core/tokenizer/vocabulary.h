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
  // Control or unknown, or a user-defined one whose name has the form "<|...|>".
  bool special = false;
  bool end_of_text = false;
  // Plain text in the byte alphabet: what merging bytes may arrive at.
  bool mergeable = false;
};

// The tokens of a model file: their bytes, kinds and roles. Immutable once loaded.
class Vocabulary {
 public:
  // Reads tokenizer.ggml.tokens, .token_type and the ..._token_id keys; the text of normal tokens
  // is in the byte alphabet. Errors: those of gguf/errors.h.
  static absl::StatusOr<Vocabulary> LoadByteLevel(const gguf::File& file);

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  const Token& operator[](int32_t id) const { return tokens_[static_cast<size_t>(id)]; }

  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  // Ascending.
  const std::vector<int32_t>& end_of_text_ids() const { return end_of_text_ids_; }

 private:
  absl::Status LoadTokens(const gguf::File& file);
  absl::Status LoadRoles(const gguf::File& file);

  std::vector<Token> tokens_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  std::vector<int32_t> end_of_text_ids_;
};

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_VOCABULARY_H_
