// A turn's input as tokens, in two steps: what takes long is done on the caller's
// thread, before the base is known; what depends on the base is done when the
// turn starts.
#ifndef TOKEND_CORE_ENGINE_INPUT_H_
#define TOKEND_CORE_ENGINE_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/engine/request.h"
#include "core/kv/types.h"
#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/tokenizer.h"

namespace tokend::engine {

// Any thread made it; nothing in it depends on the session.
struct PreparedInput {
  // Text without BOS, tokens as they are, or a chat as at the start of a
  // conversation.
  std::vector<int32_t> tokens;
  // Text of a tokeniser that marks where a text starts: the same behind other text, and which
  // tokeniser it is.
  std::vector<int32_t> continued;
  const tokenizer::Tokenizer* start_marker = nullptr;
  // Text: BOS, if the model uses one and it may be wanted.
  std::optional<int32_t> bos;
  bool bos_everywhere = false;  // not at position 0 alone
  // A chat: its messages and where each lies in `tokens`. Empty else.
  std::vector<kv::ChatMessage> messages;
  size_t default_system = 0;  // how many of them the template put in front
  bool open_reply = false;    // `tokens` ends with the opening of the reply
  size_t reply_begin = 0;
};

// `chat` is nullptr if the model has no template. INVALID_ARGUMENT: a token id
// or message is not valid, or the text cannot be tokenised; FAILED_PRECONDITION
// kFeatureUnavailable: a chat without a template.
absl::StatusOr<PreparedInput> PrepareInput(const tokenizer::Tokenizer& tokenizer,
                                           const tokenizer::ChatTemplate* chat,
                                           const Request& request);

// What a turn builds on.
struct InputBase {
  int64_t tokens = 0;
  kv::Conversation conversation;  // may be null
  // The last tokens, kTailTokens of them if there are as many.
  absl::Span<const int32_t> tail;
};
inline constexpr int64_t kTailTokens = 8;

struct PlacedInput {
  std::vector<int32_t> tokens;
  // Of a chat: the conversation with this turn's messages and, last, the opening
  // of the reply.
  std::vector<kv::ChatMessage> conversation;
  bool is_chat = false;
  bool reply_opened = false;
  int32_t dropped = 0;
};

// `input` after its base: BOS, the closing of the message before, and the
// template's start where they are due.
absl::StatusOr<PlacedInput> PlaceInput(const tokenizer::ChatTemplate* chat,
                                       const PreparedInput& input, const InputBase& base);

// Leaves out the oldest tokens until `room` are left; BOS stays in front of a
// text. Messages of this turn are cut or left out with them. `room` is at least 1.
void DropOldest(int64_t room, const InputBase& base, std::optional<int32_t> bos,
                PlacedInput* input);

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_INPUT_H_
