#include "core/tokenizer/errors.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/gguf/errors.h"

namespace tokend::tokenizer {

absl::Status ByteWithoutToken(unsigned char byte, size_t offset) {
  return base::InvalidField(
      "text", absl::StrCat("byte 0x", absl::Hex(byte, absl::kZeroPad2), " at offset ", offset,
                           " has no token in this model's vocabulary"));
}

absl::Status RepeatedToken(int32_t id, absl::string_view bytes, int32_t first_id) {
  return gguf::Damaged(
      "key 'tokenizer.ggml.tokens'",
      absl::StrCat("token ", id, ", ", gguf::Quoted(bytes), ", is token ", first_id, " too"));
}

absl::Status TokenIdOutOfRange(size_t index, int64_t id, int32_t vocabulary_size) {
  return base::InvalidField("token_ids", absl::StrCat("number ", index, " is ", id,
                                                      ", outside [0, ", vocabulary_size, ")"));
}

absl::Status PatternFailed(int pcre2_error) {
  PCRE2_UCHAR message[128] = {0};
  pcre2_get_error_message(pcre2_error, message, sizeof(message));
  return absl::InternalError(
      absl::StrCat("pre-tokeniser pattern: ", reinterpret_cast<const char*>(message)));
}

absl::Status NoChat(absl::string_view why) { return base::FeatureUnavailable("chat", why); }

}  // namespace tokend::tokenizer
