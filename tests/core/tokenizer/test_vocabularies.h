#ifndef TOKEND_TESTS_CORE_TOKENIZER_TEST_VOCABULARIES_H_
#define TOKEND_TESTS_CORE_TOKENIZER_TEST_VOCABULARIES_H_

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "absl/status/statusor.h"
#include "core/gguf/file.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/support/gguf_writer.h"

namespace tokend::tokenizer {

inline absl::StatusOr<std::unique_ptr<Tokenizer>> FromBytes(const std::string& bytes) {
  auto file = gguf::File::Parse(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
  if (!file.ok()) return file.status();
  return Tokenizer::Create(**file);
}

// See testing::AddTinyVocabulary.
inline std::unique_ptr<Tokenizer> TinyTokenizer(absl::string_view pre_tokenizer = "gpt-2") {
  testing::GgufWriter writer;
  testing::AddTinyVocabulary(writer, pre_tokenizer);
  auto tokenizer = FromBytes(writer.Build());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

inline std::unique_ptr<Tokenizer> FromPath(const std::string& path) {
  auto file = gguf::File::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  auto tokenizer = Tokenizer::Create(**file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::string CodePointUtf8(char32_t code_point);

// Text of code points from all planes and scripts, with runs of spaces, digits and letters.
std::string RandomText(std::mt19937_64& rng, size_t code_points);

std::string RandomBytes(std::mt19937_64& rng, size_t size);

}  // namespace tokend::tokenizer

#endif  // TOKEND_TESTS_CORE_TOKENIZER_TEST_VOCABULARIES_H_
