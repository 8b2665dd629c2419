#ifndef TOKEND_CORE_TOKENIZER_SENTENCE_PIECE_ENCODER_H_
#define TOKEND_CORE_TOKENIZER_SENTENCE_PIECE_ENCODER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/gguf/file.h"
#include "core/tokenizer/text_encoder.h"
#include "core/tokenizer/vocabulary.h"

namespace tokend::tokenizer {

// SentencePiece's byte-pair model: of all adjacent symbols that together are a token, those whose
// token has the highest score are joined, the leftmost on ties, until none are left; symbols are
// code points at first. An unused token that came out so is taken apart again as it was joined.
// What is no token then becomes byte tokens. U+2581 is a space, as it is in the model's own file.
class SentencePieceEncoder final : public TextEncoder {
 public:
  // Reads tokenizer.ggml.scores and .add_space_prefix (true if it is not there). `vocabulary` must
  // outlive the encoder. Errors: those of gguf/errors.h.
  static absl::StatusOr<std::unique_ptr<SentencePieceEncoder>> Create(const gguf::File& file,
                                                                      const Vocabulary* vocabulary);

  absl::Status Encode(absl::string_view text, size_t offset, bool at_boundary,
                      std::vector<int32_t>* ids) const override;
  bool space_prefix() const override { return space_prefix_; }

 private:
  class Merger;

  explicit SentencePieceEncoder(const Vocabulary* vocabulary) : vocabulary_(*vocabulary) {}
  absl::Status LoadTokens();
  absl::Status LoadScores(const gguf::File& file);
  // -1: no mergeable token.
  int32_t Find(absl::string_view bytes) const;

  const Vocabulary& vocabulary_;
  // Of mergeable tokens; views into vocabulary_.
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
  size_t longest_token_bytes_ = 0;
  std::array<int32_t, 256> byte_ids_;  // -1: no token
  // By id, in the order of merging: the least number is the highest score.
  std::vector<uint32_t> score_order_;
  bool space_prefix_ = true;
};

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_SENTENCE_PIECE_ENCODER_H_
