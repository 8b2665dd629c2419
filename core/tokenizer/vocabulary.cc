#include "core/tokenizer/vocabulary.h"

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/tokenizer/byte_alphabet.h"

namespace tokend::tokenizer {
namespace {

// Special tokens that end a text in the model families that have them, whatever roles the file
// gives them.
constexpr absl::string_view kEndOfTextNames[] = {
    "<|im_end|>",    "<|endoftext|>",   "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end|>",
    "<|endofturn|>", "<|end_of_turn|>", "<end_of_turn>",   "<|return|>", "<EOT>",      "<eos>",
    "</s>"};

constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kTypesKey[] = "tokenizer.ggml.token_type";

bool LooksLikeControl(absl::string_view text) {
  return text.size() > 4 && absl::StartsWith(text, "<|") && absl::EndsWith(text, "|>");
}

// "<0x0A>" is one byte.
absl::StatusOr<std::string> ByteTokenBytes(size_t id, absl::string_view text) {
  uint32_t byte = 0;
  if (text.size() != 6 || !absl::StartsWith(text, "<0x") || text[5] != '>' ||
      !absl::SimpleHexAtoi(text.substr(3, 2), &byte)) {
    return gguf::Damaged(
        absl::StrCat("token ", id),
        absl::StrCat(gguf::Quoted(text), " is marked as a byte but is not <0xHH>"));
  }
  return std::string(1, static_cast<char>(byte));
}

absl::StatusOr<Token> MakeToken(size_t id, absl::string_view text, int32_t type) {
  if (type < static_cast<int32_t>(TokenType::kNormal) ||
      type > static_cast<int32_t>(TokenType::kByte)) {
    return gguf::Damaged(absl::StrCat("key '", kTypesKey, "'"),
                         absl::StrCat("token ", id, " has the unknown type ", type));
  }
  Token token;
  token.type = static_cast<TokenType>(type);
  token.bytes = std::string(text);
  if (token.type == TokenType::kByte) {
    TOKEND_ASSIGN_OR_RETURN(token.bytes, ByteTokenBytes(id, text));
  } else if (token.type == TokenType::kNormal) {
    std::optional<std::string> bytes = FromByteAlphabet(text);
    token.mergeable = bytes.has_value() && !bytes->empty();
    if (bytes.has_value()) token.bytes = *std::move(bytes);
  }
  token.special = token.type == TokenType::kControl || token.type == TokenType::kUnknown ||
                  (token.type == TokenType::kUserDefined && LooksLikeControl(text));
  return token;
}

}  // namespace

absl::StatusOr<Vocabulary> Vocabulary::LoadByteLevel(const gguf::File& file) {
  Vocabulary vocabulary;
  TOKEND_RETURN_IF_ERROR(vocabulary.LoadTokens(file));
  TOKEND_RETURN_IF_ERROR(vocabulary.LoadRoles(file));
  return vocabulary;
}

absl::Status Vocabulary::LoadTokens(const gguf::File& file) {
  TOKEND_ASSIGN_OR_RETURN(const std::vector<absl::string_view> texts, file.GetStrings(kTokensKey));
  if (texts.empty() || texts.size() > std::numeric_limits<int32_t>::max()) {
    return gguf::Damaged(absl::StrCat("key '", kTokensKey, "'"),
                         absl::StrCat("a vocabulary of ", texts.size(), " tokens"));
  }
  std::vector<int32_t> types(texts.size(), static_cast<int32_t>(TokenType::kNormal));
  if (file.Has(kTypesKey)) {
    TOKEND_ASSIGN_OR_RETURN(types, file.GetI32s(kTypesKey));
  }
  if (types.size() != texts.size()) {
    return gguf::Damaged(absl::StrCat("key '", kTypesKey, "'"),
                         absl::StrCat(types.size(), " types for ", texts.size(), " tokens"));
  }
  tokens_.reserve(texts.size());
  for (size_t id = 0; id < texts.size(); ++id) {
    TOKEND_ASSIGN_OR_RETURN(Token token, MakeToken(id, texts[id], types[id]));
    tokens_.push_back(std::move(token));
  }
  return absl::OkStatus();
}

absl::Status Vocabulary::LoadRoles(const gguf::File& file) {
  const auto read = [&](absl::string_view name) -> absl::StatusOr<std::optional<int32_t>> {
    const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
    if (!file.Has(key)) return std::optional<int32_t>();
    TOKEND_ASSIGN_OR_RETURN(const uint32_t id, file.GetU32(key));
    if (id >= tokens_.size()) {
      return gguf::Damaged(
          absl::StrCat("key '", key, "'"),
          absl::StrCat("token ", id, " is outside the vocabulary of ", tokens_.size(), " tokens"));
    }
    return std::optional<int32_t>(static_cast<int32_t>(id));
  };
  TOKEND_ASSIGN_OR_RETURN(bos_id_, read("bos"));
  TOKEND_ASSIGN_OR_RETURN(eos_id_, read("eos"));
  TOKEND_ASSIGN_OR_RETURN(const std::optional<int32_t> end_of_turn, read("eot"));
  TOKEND_ASSIGN_OR_RETURN(const std::optional<int32_t> end_of_message, read("eom"));
  for (const std::optional<int32_t>& id : {eos_id_, end_of_turn, end_of_message}) {
    if (id.has_value()) tokens_[static_cast<size_t>(*id)].end_of_text = true;
  }
  for (size_t id = 0; id < tokens_.size(); ++id) {
    Token& token = tokens_[id];
    if (token.special && std::count(std::begin(kEndOfTextNames), std::end(kEndOfTextNames),
                                    absl::string_view(token.bytes)) > 0) {
      token.end_of_text = true;
    }
    if (token.end_of_text) end_of_text_ids_.push_back(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

}  // namespace tokend::tokenizer
