// Any bytes as text: encoding gives them back, and decoding never splits a code point.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/gguf/file.h"
#include "core/tokenizer/incremental_decoder.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/utf8.h"
#include "tests/support/gguf_writer.h"

namespace tokend {
namespace {

std::unique_ptr<tokenizer::Tokenizer> Load(const testing::GgufWriter& writer) {
  const std::string bytes = writer.Build();
  const auto file = gguf::File::Parse(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
  TOKEND_CHECK(file.ok());
  auto tokenizer = tokenizer::Tokenizer::Create(**file);
  TOKEND_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

std::unique_ptr<tokenizer::Tokenizer> BytePairs(absl::string_view pre_tokenizer) {
  testing::GgufWriter writer;
  testing::AddTinyVocabulary(writer, pre_tokenizer);
  return Load(writer);
}

std::unique_ptr<tokenizer::Tokenizer> SentencePieces() {
  testing::GgufWriter writer;
  testing::AddTinySentencePiece(writer);
  return Load(writer);
}

void Check(const tokenizer::Tokenizer& tokenizer, absl::string_view text, bool parse_special) {
  const auto ids = tokenizer.Encode(text, {.parse_special = parse_special});
  TOKEND_CHECK(ids.ok());
  const std::string expected =
      tokenizer.marks_start() ? tokenizer::UnescapeSpaces(text) : std::string(text);
  TOKEND_CHECK(*tokenizer.Detokenize(*ids, false) == expected);
  tokenizer::IncrementalDecoder decoder(&tokenizer);
  std::string decoded;
  for (int32_t id : *ids) {
    TOKEND_CHECK(parse_special || !tokenizer.IsSpecial(id));
    const tokenizer::DecodedText piece = decoder.Feed(id);
    TOKEND_CHECK(tokenizer::IsUtf8(piece.text));
    decoded += piece.text;
  }
  decoded += decoder.Flush().text;
  TOKEND_CHECK(decoded == tokenizer::ReplaceInvalidUtf8(*tokenizer.RawBytes(*ids)));
}

// The first byte chooses the tokeniser and whether special tokens are read.
void Fuzz(absl::string_view input) {
  static const std::array<std::unique_ptr<tokenizer::Tokenizer>, 8> tokenizers = {
      BytePairs("gpt-2"),  BytePairs("smollm"), BytePairs("llama-bpe"), BytePairs("qwen2"),
      BytePairs("tekken"), BytePairs("gpt-4o"), BytePairs("default"),   SentencePieces()};
  if (input.empty()) return;
  const auto choice = static_cast<unsigned char>(input[0]);
  Check(*tokenizers[choice / 2 % tokenizers.size()], input.substr(1), choice % 2 == 1);
}

}  // namespace
}  // namespace tokend

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tokend::Fuzz(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
