#include "core/tokenizer/tokenizer.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/tokenizer/bpe_encoder.h"
#include "core/tokenizer/errors.h"
#include "core/tokenizer/sentence_piece_encoder.h"
#include "core/tokenizer/special_matcher.h"

namespace tokend::tokenizer {
namespace {

constexpr absl::string_view kBytePairModel = "gpt2";
constexpr absl::string_view kSentencePieceModel = "llama";

// `fallback`, if the file names the token, for a key that is not there.
absl::StatusOr<bool> ReadFlag(const gguf::File& file, absl::string_view key, bool fallback,
                              std::optional<int32_t> id) {
  TOKEND_ASSIGN_OR_RETURN(const bool flag, file.GetBoolOr(key, fallback && id.has_value()));
  if (flag && !id.has_value()) {
    return gguf::Damaged(absl::StrCat("key '", key, "'"), "true, but the file names no such token");
  }
  return flag;
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(const gguf::File& file) {
  TOKEND_ASSIGN_OR_RETURN(const absl::string_view model, file.GetString("tokenizer.ggml.model"));
  std::unique_ptr<Tokenizer> tokenizer;
  bool add_bos = false;
  if (model == kSentencePieceModel) {
    TOKEND_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::LoadSentencePiece(file));
    tokenizer.reset(new Tokenizer(std::move(vocabulary)));
    TOKEND_ASSIGN_OR_RETURN(tokenizer->encoder_,
                            SentencePieceEncoder::Create(file, &tokenizer->vocabulary_));
    add_bos = true;
  } else if (model == kBytePairModel) {
    TOKEND_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::LoadByteLevel(file));
    tokenizer.reset(new Tokenizer(std::move(vocabulary)));
    TOKEND_ASSIGN_OR_RETURN(auto encoder, BpeEncoder::Create(file, tokenizer->vocabulary_));
    add_bos = encoder->pre_tokenizer().add_bos;
    tokenizer->encoder_ = std::move(encoder);
  } else {
    return gguf::Unsupported(
        "key 'tokenizer.ggml.model'",
        absl::StrCat("tokeniser ", gguf::Quoted(model), " is not known; known: ", kBytePairModel,
                     ", ", kSentencePieceModel));
  }
  TOKEND_ASSIGN_OR_RETURN(tokenizer->specials_, SpecialMatcher::Create(tokenizer->vocabulary_));
  TOKEND_ASSIGN_OR_RETURN(tokenizer->add_bos_, ReadFlag(file, "tokenizer.ggml.add_bos_token",
                                                        add_bos, tokenizer->bos_id()));
  TOKEND_ASSIGN_OR_RETURN(tokenizer->add_eos_, ReadFlag(file, "tokenizer.ggml.add_eos_token", false,
                                                        tokenizer->eos_id()));
  return tokenizer;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text,
                                                       const EncodeOptions& options) const {
  if (text.size() > std::numeric_limits<int32_t>::max()) {
    return base::InvalidField("text", absl::StrCat(text.size(), " bytes are too many"));
  }
  std::vector<int32_t> ids;
  if (options.add_bos && add_bos_) ids.push_back(*bos_id());
  size_t begin = 0;
  while (begin < text.size()) {
    const auto match = specials_->Find(text, begin, options.parse_special);
    const size_t end = match.has_value() ? match->begin : text.size();
    if (end > begin) {
      const bool at_boundary = begin > 0 || options.at_start;
      TOKEND_RETURN_IF_ERROR(
          encoder_->Encode(text.substr(begin, end - begin), begin, at_boundary, &ids));
    }
    begin = end;
    if (match.has_value()) {
      ids.push_back(match->id);
      begin += match->size;
    }
  }
  if (options.add_eos && add_eos_) ids.push_back(*eos_id());
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Detokenize(absl::Span<const int32_t> ids,
                                                  bool skip_special) const {
  std::string bytes;
  bool at_boundary = true;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!IsValid(ids[i])) return TokenIdOutOfRange(i, ids[i], vocabulary_size());
    absl::string_view token = TokenBytes(ids[i]);
    const bool whole = IsReadAsWhole(ids[i]);
    if (at_boundary && !whole && encoder_->space_prefix()) absl::ConsumePrefix(&token, " ");
    at_boundary = whole;
    if (skip_special && IsSpecial(ids[i])) continue;
    bytes.append(token.data(), token.size());
  }
  return bytes;
}

absl::StatusOr<std::string> Tokenizer::RawBytes(absl::Span<const int32_t> ids) const {
  std::string bytes;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!IsValid(ids[i])) return TokenIdOutOfRange(i, ids[i], vocabulary_size());
    const absl::string_view token = TokenBytes(ids[i]);
    bytes.append(token.data(), token.size());
  }
  return bytes;
}

bool Tokenizer::marks_start() const { return encoder_->space_prefix(); }

std::optional<int32_t> Tokenizer::FindSpecial(absl::string_view name) const {
  return specials_->FindSpecial(name);
}

}  // namespace tokend::tokenizer
