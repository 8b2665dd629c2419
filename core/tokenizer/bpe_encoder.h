#ifndef TOKEND_CORE_TOKENIZER_BPE_ENCODER_H_
#define TOKEND_CORE_TOKENIZER_BPE_ENCODER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/gguf/file.h"
#include "core/tokenizer/pre_tokenizer.h"
#include "core/tokenizer/text_encoder.h"
#include "core/tokenizer/vocabulary.h"

namespace tokend::tokenizer {

// Byte-pair encoding of plain text: in each piece of the pre-tokeniser the adjacent pair with the
// lowest rank is merged, the leftmost on ties, until none is left. Immutable and thread-safe.
class BpeEncoder final : public TextEncoder {
 public:
  // Reads tokenizer.ggml.pre ("default" if it is not there) and .merges. Errors: those of
  // gguf/errors.h.
  static absl::StatusOr<std::unique_ptr<BpeEncoder>> Create(const gguf::File& file,
                                                            const Vocabulary& vocabulary);

  const PreTokenizerSpec& pre_tokenizer() const { return pre_tokenizer_->spec(); }

  absl::Status Encode(absl::string_view text, size_t offset, bool at_boundary,
                      std::vector<int32_t>* ids) const override;
  bool space_prefix() const override { return false; }

 private:
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t merged;
  };
  class PieceMerger;
  using IdByBytes = absl::flat_hash_map<std::string, int32_t>;

  BpeEncoder() = default;
  absl::Status LoadMerges(const gguf::File& file);
  absl::Status AddMerge(absl::string_view line);
  // -1: none.
  int32_t FindRank(int32_t left, int32_t right) const;

  std::unique_ptr<const PreTokenizer> pre_tokenizer_;
  std::array<int32_t, 256> byte_ids_;             // -1: no token
  std::vector<Merge> merges_;                     // by rank
  absl::flat_hash_map<uint64_t, int32_t> ranks_;  // left id << 32 | right id
  IdByBytes ids_;                                 // mergeable tokens; kept for whole pieces only
};

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_BPE_ENCODER_H_
