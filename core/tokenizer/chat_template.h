#ifndef TOKEND_CORE_TOKENIZER_CHAT_TEMPLATE_H_
#define TOKEND_CORE_TOKENIZER_CHAT_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/gguf/file.h"
#include "core/tokenizer/tokenizer.h"

namespace tokend::tokenizer {

struct ChatFamily;

enum class Role { kSystem, kUser, kAssistant };

absl::string_view RoleName(Role role);  // "system"

struct Message {
  Role role = Role::kUser;
  std::string text;  // any bytes; never becomes a special token
};

struct RenderOptions {
  // The conversation has no earlier message: what the template puts at its start is due.
  bool at_start = true;
  // Leave out the template's own default system message.
  bool omit_default_system = false;
  // If the last thing in the session is a chat message, closed or not: the session's last tokens
  // (8 are enough). The template's closing of that message is completed first. Empty otherwise.
  absl::Span<const int32_t> tail;
  // End with the opening of the assistant's reply.
  bool open_reply = true;
};

// Tokens [begin, end) of RenderedChat::tokens.
struct TokenSpan {
  size_t begin = 0;
  size_t end = 0;
};

struct RenderedChat {
  std::vector<int32_t> tokens;
  // Tokens in front that complete the message before: they extend that message's span.
  size_t closing_tokens = 0;
  // The template's default system message, if it was put in.
  std::optional<TokenSpan> default_system;
  // One for each message: header, text and closing, which together cover all of `tokens` but what
  // the other fields name.
  std::vector<TokenSpan> messages;
  // Where the assistant's reply begins, header included; tokens.size() without open_reply.
  size_t reply_begin = 0;
};

// A model's chat format, recognised from tokenizer.chat_template as one of a table of families.
// Text between two special tokens is tokenised as one, as if the whole rendered text had been.
// Immutable and thread-safe.
class ChatTemplate {
 public:
  // `tokenizer` must outlive the template. FAILED_PRECONDITION, FEATURE_UNAVAILABLE ("chat") if
  // the file has no template, one of no known family, or lacks the family's special tokens; other
  // errors: those of gguf/errors.h.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(const gguf::File& file,
                                                              const Tokenizer* tokenizer);

  // Errors: those of Tokenizer::Encode, which name "messages[i]".
  absl::StatusOr<RenderedChat> Render(absl::Span<const Message> messages,
                                      const RenderOptions& options) const;

  absl::string_view family() const;  // "chatml"
  // Absent: the template has none.
  const std::optional<std::string>& default_system() const { return default_system_; }

 private:
  ChatTemplate(const Tokenizer* tokenizer, const ChatFamily* family)
      : tokenizer_(tokenizer), family_(family) {}

  const Tokenizer* const tokenizer_;
  const ChatFamily* const family_;
  std::optional<std::string> default_system_;
};

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_CHAT_TEMPLATE_H_
