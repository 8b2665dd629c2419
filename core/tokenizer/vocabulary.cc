#include "core/tokenizer/vocabulary.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/tokenizer/byte_alphabet.h"

namespace tokend::tokenizer {
namespace {

// Special tokens that end a text in the model families that have them, whatever roles the file
// gives them.
constexpr absl::string_view kEndOfTextNames[] = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endofturn|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<|return|>",
    "<EOT>",
    "<eos>",
    "</s>",
    "<|observation|>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kTypesKey[] = "tokenizer.ggml.token_type";

// Marks of a turn that some files call user-defined.
constexpr absl::string_view kTurnNames[] = {"<start_of_turn>", "<s>", "<bos>", "[gMASK]", "<sop>"};

// The second pair of bars is U+FF5C.
constexpr std::pair<absl::string_view, absl::string_view> kControlBrackets[] = {
    {"<|", "|>"}, {"<\xEF\xBD\x9C", "\xEF\xBD\x9C>"}};

bool IsOneOf(absl::Span<const absl::string_view> names, absl::string_view text) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

bool LooksLikeControl(absl::string_view text) {
  for (const auto& [open, close] : kControlBrackets) {
    if (text.size() > open.size() + close.size() && absl::StartsWith(text, open) &&
        absl::EndsWith(text, close)) {
      return true;
    }
  }
  return IsOneOf(kTurnNames, text) || IsOneOf(kEndOfTextNames, text);
}

// "<0x0A>" is one byte.
absl::StatusOr<std::string> ByteTokenBytes(size_t id, absl::string_view text) {
  uint32_t byte = 0;
  if (text.size() != 6 || !absl::StartsWith(text, "<0x") || text[5] != '>' ||
      !absl::ascii_isxdigit(static_cast<unsigned char>(text[3])) ||
      !absl::ascii_isxdigit(static_cast<unsigned char>(text[4])) ||
      !absl::SimpleHexAtoi(text.substr(3, 2), &byte)) {
    return gguf::Damaged(absl::StrCat("key '", kTokensKey, "'"),
                         absl::StrCat("token ", id, ", ", gguf::Quoted(text),
                                      ", is marked as a byte but is not <0xHH>"));
  }
  return std::string(1, static_cast<char>(byte));
}

}  // namespace

std::string UnescapeSpaces(absl::string_view text) {
  return absl::StrReplaceAll(text, {{kEscapedSpace, " "}});
}

absl::StatusOr<Vocabulary> Vocabulary::LoadByteLevel(const gguf::File& file) {
  Vocabulary vocabulary;
  TOKEND_RETURN_IF_ERROR(vocabulary.LoadTokens(file, Writing::kByteLevel));
  TOKEND_RETURN_IF_ERROR(vocabulary.LoadRoles(file, Writing::kByteLevel));
  return vocabulary;
}

absl::StatusOr<Vocabulary> Vocabulary::LoadSentencePiece(const gguf::File& file) {
  Vocabulary vocabulary;
  TOKEND_RETURN_IF_ERROR(vocabulary.LoadTokens(file, Writing::kSentencePiece));
  TOKEND_RETURN_IF_ERROR(vocabulary.LoadRoles(file, Writing::kSentencePiece));
  return vocabulary;
}

absl::StatusOr<Token> Vocabulary::MakeToken(size_t id, absl::string_view text, int32_t type,
                                            Writing writing) {
  if (type < static_cast<int32_t>(TokenType::kNormal) ||
      type > static_cast<int32_t>(TokenType::kByte)) {
    return gguf::Damaged(absl::StrCat("key '", kTypesKey, "'"),
                         absl::StrCat("token ", id, " has the unknown type ", type));
  }
  Token token;
  token.type = static_cast<TokenType>(type);
  token.bytes = std::string(text);
  token.special = token.type == TokenType::kControl || token.type == TokenType::kUnknown ||
                  (token.type == TokenType::kUserDefined && LooksLikeControl(text));
  if (token.type == TokenType::kByte) {
    TOKEND_ASSIGN_OR_RETURN(token.bytes, ByteTokenBytes(id, text));
  } else if (writing == Writing::kSentencePiece) {
    if (!token.special) token.bytes = UnescapeSpaces(text);
    token.mergeable = !token.bytes.empty() &&
                      (token.type == TokenType::kNormal || token.type == TokenType::kUnused);
  } else if (token.type == TokenType::kNormal) {
    std::optional<std::string> bytes = FromByteAlphabet(text);
    token.mergeable = bytes.has_value() && !bytes->empty();
    if (bytes.has_value()) token.bytes = *std::move(bytes);
  }
  return token;
}

absl::Status Vocabulary::LoadTokens(const gguf::File& file, Writing writing) {
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
    TOKEND_ASSIGN_OR_RETURN(Token token, MakeToken(id, texts[id], types[id], writing));
    tokens_.push_back(std::move(token));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int32_t>> Vocabulary::ReadRole(const gguf::File& file,
                                                            absl::string_view name,
                                                            std::optional<int32_t> fallback) const {
  const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
  if (!file.Has(key)) {
    const bool there = fallback.has_value() && *fallback < size() && (*this)[*fallback].special;
    return there ? fallback : std::nullopt;
  }
  TOKEND_ASSIGN_OR_RETURN(const uint32_t id, file.GetU32(key));
  if (id >= tokens_.size()) {
    return gguf::Damaged(
        absl::StrCat("key '", key, "'"),
        absl::StrCat("token ", id, " is outside the vocabulary of ", tokens_.size(), " tokens"));
  }
  return std::optional<int32_t>(static_cast<int32_t>(id));
}

absl::Status Vocabulary::LoadRoles(const gguf::File& file, Writing writing) {
  std::optional<int32_t> usual_bos;
  std::optional<int32_t> usual_eos;
  if (writing == Writing::kSentencePiece) {
    usual_bos = 1;
    usual_eos = 2;
  }
  TOKEND_ASSIGN_OR_RETURN(bos_id_, ReadRole(file, "bos", usual_bos));
  TOKEND_ASSIGN_OR_RETURN(eos_id_, ReadRole(file, "eos", usual_eos));
  TOKEND_ASSIGN_OR_RETURN(const auto end_of_turn, ReadRole(file, "eot", std::nullopt));
  TOKEND_ASSIGN_OR_RETURN(const auto end_of_message, ReadRole(file, "eom", std::nullopt));
  for (const std::optional<int32_t>& id : {eos_id_, end_of_turn, end_of_message}) {
    if (id.has_value()) tokens_[static_cast<size_t>(*id)].end_of_text = true;
  }
  for (size_t id = 0; id < tokens_.size(); ++id) {
    Token& token = tokens_[id];
    if (token.special && IsOneOf(kEndOfTextNames, token.bytes)) token.end_of_text = true;
    if (token.end_of_text) end_of_text_ids_.push_back(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

}  // namespace tokend::tokenizer
