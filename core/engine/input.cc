#include "core/engine/input.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace tokend::engine {
namespace {

tokenizer::Role ToTemplateRole(kv::Role role) {
  switch (role) {
    case kv::Role::kSystem:
      return tokenizer::Role::kSystem;
    case kv::Role::kUser:
      return tokenizer::Role::kUser;
    case kv::Role::kAssistant:
      return tokenizer::Role::kAssistant;
  }
  return tokenizer::Role::kUser;
}

absl::StatusOr<PreparedInput> PrepareText(const tokenizer::Tokenizer& tokenizer,
                                          const TextInput& text) {
  PreparedInput input;
  tokenizer::EncodeOptions options;
  options.parse_special = text.parse_special;
  TOKEND_ASSIGN_OR_RETURN(input.tokens, tokenizer.Encode(text.text, options));
  if (tokenizer.marks_start()) {
    options.at_start = false;
    TOKEND_ASSIGN_OR_RETURN(input.continued, tokenizer.Encode(text.text, options));
    input.start_marker = &tokenizer;
  }
  if (tokenizer.uses_bos() && text.add_bos.value_or(true)) input.bos = tokenizer.bos_id();
  input.bos_everywhere = text.add_bos.has_value();
  return input;
}

absl::StatusOr<PreparedInput> PrepareTokens(const tokenizer::Tokenizer& tokenizer,
                                            const TokenInput& tokens) {
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (!tokenizer.IsValid(tokens.ids[i])) {
      return base::InvalidField(
          absl::StrCat("turn.tokens.token_ids[", i, "]"),
          absl::StrCat(tokens.ids[i], " is not in [0, ", tokenizer.vocabulary_size(), ")"));
    }
  }
  PreparedInput input;
  input.tokens = tokens.ids;
  return input;
}

absl::StatusOr<PreparedInput> PrepareChat(const tokenizer::ChatTemplate* chat,
                                          const ChatInput& given, bool open_reply) {
  if (chat == nullptr) {
    return base::FeatureUnavailable("chat", "the model has no chat template that is known");
  }
  if (given.messages.empty()) return base::InvalidField("turn.chat.messages", "is empty");
  std::vector<tokenizer::Message> messages;
  for (const ChatInput::Message& message : given.messages) {
    messages.push_back({ToTemplateRole(message.role), message.text});
  }
  tokenizer::RenderOptions options;
  options.omit_default_system = given.omit_default_system;
  options.open_reply = open_reply;
  TOKEND_ASSIGN_OR_RETURN(tokenizer::RenderedChat rendered, chat->Render(messages, options));
  PreparedInput input;
  const auto add = [&input](kv::Role role, const std::string& text, tokenizer::TokenSpan span) {
    kv::ChatMessage message;
    message.role = role;
    message.text = std::make_shared<const std::string>(text);
    message.begin = static_cast<int64_t>(span.begin);
    message.end = static_cast<int64_t>(span.end);
    input.messages.push_back(std::move(message));
  };
  if (rendered.default_system.has_value()) {
    add(kv::Role::kSystem, chat->default_system().value_or(""), *rendered.default_system);
    input.default_system = 1;
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    add(given.messages[i].role, given.messages[i].text, rendered.messages[i]);
  }
  input.tokens = std::move(rendered.tokens);
  input.open_reply = open_reply;
  input.reply_begin = rendered.reply_begin;
  return input;
}

}  // namespace

absl::StatusOr<PreparedInput> PrepareInput(const tokenizer::Tokenizer& tokenizer,
                                           const tokenizer::ChatTemplate* chat,
                                           const Request& request) {
  if (const auto* text = std::get_if<TextInput>(&request.input)) {
    return PrepareText(tokenizer, *text);
  }
  if (const auto* tokens = std::get_if<TokenInput>(&request.input)) {
    return PrepareTokens(tokenizer, *tokens);
  }
  // A turn without output leaves the place for further messages open.
  const bool open_reply = request.stop.max_output_tokens != 0;
  return PrepareChat(chat, std::get<ChatInput>(request.input), open_reply);
}

namespace {

absl::StatusOr<PlacedInput> PlaceChat(const tokenizer::ChatTemplate* chat,
                                      const PreparedInput& input, const InputBase& base) {
  PlacedInput placed;
  placed.is_chat = true;
  placed.reply_opened = input.open_reply;
  if (base.conversation != nullptr) placed.conversation = *base.conversation;
  if (!placed.conversation.empty()) {
    kv::ChatMessage& last = placed.conversation.back();
    if (last.end == base.tokens) {
      tokenizer::RenderOptions options;
      options.at_start = false;
      options.open_reply = false;
      options.tail = base.tail;
      TOKEND_ASSIGN_OR_RETURN(tokenizer::RenderedChat closing, chat->Render({}, options));
      placed.tokens = std::move(closing.tokens);
      last.end += static_cast<int64_t>(placed.tokens.size());
    }
    last.closed = true;
  }
  // What the template puts at the start of a conversation comes once.
  const bool at_start = placed.conversation.empty();
  const size_t first_message = at_start ? 0 : input.default_system;
  const int64_t skipped = at_start ? 0 : input.messages[first_message].begin;
  const int64_t shift = base.tokens + static_cast<int64_t>(placed.tokens.size()) - skipped;
  placed.tokens.insert(placed.tokens.end(), input.tokens.begin() + skipped, input.tokens.end());
  for (size_t i = first_message; i < input.messages.size(); ++i) {
    kv::ChatMessage& message = placed.conversation.emplace_back(input.messages[i]);
    message.begin += shift;
    message.end += shift;
  }
  if (input.open_reply) {
    kv::ChatMessage& reply = placed.conversation.emplace_back();
    reply.role = kv::Role::kAssistant;
    reply.begin = static_cast<int64_t>(input.reply_begin) + shift;
    reply.end = base.tokens + static_cast<int64_t>(placed.tokens.size());
    reply.closed = false;
  }
  return placed;
}

}  // namespace

absl::StatusOr<PlacedInput> PlaceInput(const tokenizer::ChatTemplate* chat,
                                       const PreparedInput& input, const InputBase& base) {
  if (!input.messages.empty()) return PlaceChat(chat, input, base);
  PlacedInput placed;
  const bool with_bos = input.bos.has_value() && (input.bos_everywhere || base.tokens == 0);
  const bool continues = input.start_marker != nullptr && !with_bos && !base.tail.empty() &&
                         !input.start_marker->IsReadAsWhole(base.tail.back());
  placed.tokens = continues ? input.continued : input.tokens;
  if (with_bos) placed.tokens.insert(placed.tokens.begin(), *input.bos);
  return placed;
}

void DropOldest(int64_t room, const InputBase& base, std::optional<int32_t> bos,
                PlacedInput* input) {
  const auto size = static_cast<int64_t>(input->tokens.size());
  if (size <= room) return;
  const bool keep_bos = bos.has_value() && !input->is_chat && input->tokens[0] == *bos && room > 1;
  const int64_t dropped = size - room;
  const auto begin = input->tokens.begin() + (keep_bos ? 1 : 0);
  input->tokens.erase(begin, begin + dropped);
  input->dropped = static_cast<int32_t>(dropped);
  // Positions from the base on move down; what would end at or before it is gone.
  std::vector<kv::ChatMessage> kept;
  for (kv::ChatMessage& message : input->conversation) {
    if (message.end > base.tokens) {
      const bool is_new = message.begin >= base.tokens;
      message.cut = message.cut || (is_new && message.begin - dropped < base.tokens);
      if (is_new) message.begin = std::max(base.tokens, message.begin - dropped);
      message.end = std::max(base.tokens, message.end - dropped);
      if (is_new && message.end == base.tokens) continue;
    }
    kept.push_back(std::move(message));
  }
  input->conversation = std::move(kept);
}

}  // namespace tokend::engine
