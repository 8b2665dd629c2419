#include "core/tokenizer/chat_template.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/tokenizer/errors.h"
#include "core/tokenizer/jinja_literals.h"

namespace tokend::tokenizer {

// A line of the table: how a family looks in a template's source, and how it renders.
struct ChatFamily {
  absl::string_view name;
  // All occur in the template's source. Each message begins with one.
  absl::Span<const absl::string_view> special_tokens;
  // None occurs: signs of a template that does more to plain messages than is said here.
  absl::Span<const absl::string_view> foreign_marks;
  // A message: header_begin, role, header_end, its text, closing.
  absl::string_view header_begin;
  absl::string_view header_end;
  absl::string_view closing;
};

namespace {

constexpr char kTemplateKey[] = "tokenizer.chat_template";

constexpr absl::string_view kChatMlTokens[] = {"<|im_start|>", "<|im_end|>"};
constexpr absl::string_view kChatMlForeign[] = {"<think>", "bos_token", "trim", "strip("};

constexpr ChatFamily kFamilies[] = {
    {"chatml", kChatMlTokens, kChatMlForeign, "<|im_start|>", "\n", "<|im_end|>\n"},
};

bool Recognises(const ChatFamily& family, absl::string_view source) {
  const auto occurs = [&](absl::string_view mark) { return absl::StrContains(source, mark); };
  return std::all_of(family.special_tokens.begin(), family.special_tokens.end(), occurs) &&
         std::none_of(family.foreign_marks.begin(), family.foreign_marks.end(), occurs);
}

// The texts that the template's source writes out as a whole system message.
std::set<std::string> LiteralSystemMessages(const ChatFamily& family, absl::string_view source) {
  const std::string header =
      absl::StrCat(family.header_begin, RoleName(Role::kSystem), family.header_end);
  std::set<std::string> texts;
  for (const std::string& literal : JinjaStringLiterals(source)) {
    absl::string_view text = literal;
    if (!absl::ConsumePrefix(&text, header) || !absl::ConsumeSuffix(&text, family.closing)) {
      continue;
    }
    const bool one_message =
        std::none_of(family.special_tokens.begin(), family.special_tokens.end(),
                     [&](absl::string_view special) { return absl::StrContains(text, special); });
    if (one_message) texts.insert(std::string(text));
  }
  return texts;
}

// Collects template and message text, and tokenises what stands between two special tokens as one.
class TokenBuilder {
 public:
  TokenBuilder(const Tokenizer& tokenizer, const ChatFamily& family)
      : tokenizer_(tokenizer), family_(family) {}

  absl::Status AddTemplate(absl::string_view text) {
    while (!text.empty()) {
      size_t begin = text.size();
      absl::string_view special;
      for (absl::string_view name : family_.special_tokens) {
        const size_t at = text.find(name);
        if (at != absl::string_view::npos && at < begin) {
          begin = at;
          special = name;
        }
      }
      AddText(text.substr(0, begin));
      text.remove_prefix(begin);
      if (special.empty()) break;
      TOKEND_RETURN_IF_ERROR(Flush());
      tokens_.push_back(*tokenizer_.FindSpecial(special));  // checked when the template was made
      text.remove_prefix(special.size());
    }
    return absl::OkStatus();
  }

  void AddText(absl::string_view text) { plain_.append(text.data(), text.size()); }

  absl::Status AddMessage(absl::string_view role, absl::string_view text, TokenSpan* span) {
    TOKEND_RETURN_IF_ERROR(Flush());
    span->begin = tokens_.size();
    TOKEND_RETURN_IF_ERROR(
        AddTemplate(absl::StrCat(family_.header_begin, role, family_.header_end)));
    AddText(text);
    TOKEND_RETURN_IF_ERROR(AddTemplate(family_.closing));
    TOKEND_RETURN_IF_ERROR(Flush());
    span->end = tokens_.size();
    return absl::OkStatus();
  }

  absl::Status Flush() {
    TOKEND_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer_.Encode(plain_));
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    plain_.clear();
    return absl::OkStatus();
  }

  std::vector<int32_t>& tokens() { return tokens_; }

 private:
  const Tokenizer& tokenizer_;
  const ChatFamily& family_;
  std::string plain_;
  std::vector<int32_t> tokens_;
};

// How many tokens of `closing` the tail already ends with.
size_t ClosedTokens(absl::Span<const int32_t> tail, absl::Span<const int32_t> closing) {
  for (size_t n = std::min(tail.size(), closing.size()); n > 0; --n) {
    if (tail.last(n) == closing.first(n)) return n;
  }
  return 0;
}

// The message, and the place in it, that cannot be tokenised.
absl::Status InMessage(const Tokenizer& tokenizer, size_t index, absl::string_view text,
                       const absl::Status& status) {
  const auto info = base::GetErrorInfo(tokenizer.Encode(text).status());
  if (!info.has_value() || info->reason != base::ErrorReason::kInvalidField) return status;
  return base::InvalidField(absl::StrCat("messages[", index, "]"), info->metadata.front().second);
}

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(const gguf::File& file,
                                                                   const Tokenizer* tokenizer) {
  if (!file.Has(kTemplateKey)) return NoChat("the model has no chat template");
  TOKEND_ASSIGN_OR_RETURN(const absl::string_view source, file.GetString(kTemplateKey));
  std::string known;
  for (const ChatFamily& family : kFamilies) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", family.name);
    if (!Recognises(family, source)) continue;
    for (absl::string_view name : family.special_tokens) {
      if (!tokenizer->FindSpecial(name).has_value()) {
        return NoChat(absl::StrCat("the chat template uses ", name,
                                   ", which is no special token of the model"));
      }
    }
    std::set<std::string> texts = LiteralSystemMessages(family, source);
    if (texts.size() > 1) {
      return NoChat("the chat template has more than one default system message");
    }
    std::unique_ptr<ChatTemplate> chat(new ChatTemplate(tokenizer, &family));
    if (!texts.empty()) chat->default_system_ = *texts.begin();
    return chat;
  }
  return NoChat(absl::StrCat("the model's chat template is of no known family; known: ", known));
}

absl::string_view ChatTemplate::family() const { return family_->name; }

absl::StatusOr<RenderedChat> ChatTemplate::Render(absl::Span<const Message> messages,
                                                  const RenderOptions& options) const {
  RenderedChat chat;
  TokenBuilder builder(*tokenizer_, *family_);
  if (!options.tail.empty()) {
    TokenBuilder closing(*tokenizer_, *family_);
    TOKEND_RETURN_IF_ERROR(closing.AddTemplate(family_->closing));
    TOKEND_RETURN_IF_ERROR(closing.Flush());
    const size_t closed = ClosedTokens(options.tail, closing.tokens());
    builder.tokens().assign(closing.tokens().begin() + static_cast<std::ptrdiff_t>(closed),
                            closing.tokens().end());
    chat.closing_tokens = builder.tokens().size();
  }
  const bool system_given = !messages.empty() && messages.front().role == Role::kSystem;
  if (options.at_start && !options.omit_default_system && !system_given && !messages.empty() &&
      default_system_.has_value()) {
    TokenSpan span;
    TOKEND_RETURN_IF_ERROR(builder.AddMessage(RoleName(Role::kSystem), *default_system_, &span));
    chat.default_system = span;
  }
  for (const Message& message : messages) {
    TokenSpan span;
    const absl::Status added = builder.AddMessage(RoleName(message.role), message.text, &span);
    if (!added.ok()) {
      return InMessage(*tokenizer_, chat.messages.size(), message.text, added);
    }
    chat.messages.push_back(span);
  }
  chat.reply_begin = builder.tokens().size();
  if (options.open_reply) {
    TOKEND_RETURN_IF_ERROR(builder.AddTemplate(
        absl::StrCat(family_->header_begin, RoleName(Role::kAssistant), family_->header_end)));
    TOKEND_RETURN_IF_ERROR(builder.Flush());
  }
  chat.tokens = std::move(builder.tokens());
  return chat;
}

}  // namespace tokend::tokenizer
