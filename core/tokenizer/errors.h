// Failures of tokenising. Those of a model file are made by gguf/errors.h.
#ifndef TOKEND_CORE_TOKENIZER_ERRORS_H_
#define TOKEND_CORE_TOKENIZER_ERRORS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tokend::tokenizer {

// INVALID_ARGUMENT: the vocabulary has no token for a byte of the text.
absl::Status ByteWithoutToken(unsigned char byte, size_t offset);

// DATA_LOSS: tokenizer.ggml.tokens has the same token twice.
absl::Status RepeatedToken(int32_t id, absl::string_view bytes, int32_t first_id);

// INVALID_ARGUMENT, INVALID_FIELD "token_ids".
absl::Status TokenIdOutOfRange(size_t index, int64_t id, int32_t vocabulary_size);

// INTERNAL: PCRE2 gave up on a pre-tokeniser's pattern.
absl::Status PatternFailed(int pcre2_error);

// FAILED_PRECONDITION, FEATURE_UNAVAILABLE "chat".
absl::Status NoChat(absl::string_view why);

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_ERRORS_H_
