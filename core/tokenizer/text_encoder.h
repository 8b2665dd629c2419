#ifndef TOKEND_CORE_TOKENIZER_TEXT_ENCODER_H_
#define TOKEND_CORE_TOKENIZER_TEXT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tokend::tokenizer {

// Text between the tokens that are read as a whole. Immutable and thread-safe.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  // Appends the ids of `text`, which is not empty and begins at byte `offset` of what the caller
  // was given. `at_boundary`: nothing is in front of it, or a token that was read as a whole.
  // Only mergeable and byte tokens come out. O(n log n) in the length of what is merged as one.
  // INVALID_ARGUMENT, "text": a byte that has no token.
  virtual absl::Status Encode(absl::string_view text, size_t offset, bool at_boundary,
                              std::vector<int32_t>* ids) const = 0;

  // Whether text at a boundary gets a space in front.
  virtual bool space_prefix() const = 0;
};

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_TEXT_ENCODER_H_
