#include "core/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/core/tokenizer/test_vocabularies.h"

namespace tokend::tokenizer {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Pieces(absl::string_view name, absl::string_view text) {
  const auto pre_tokenizer = PreTokenizer::Create(name);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  std::vector<std::string> pieces;
  const absl::Status status = (*pre_tokenizer)->Split(text, [&](absl::string_view piece) {
    pieces.emplace_back(piece);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

TEST(PreTokenizerTest, Gpt2) {
  EXPECT_THAT(Pieces("gpt-2", "Hello, y'all! 1234"),
              ElementsAre("Hello", ",", " y", "'", "all", "!", " 1234"));
  EXPECT_THAT(Pieces("gpt-2", "they'll they'LL"), ElementsAre("they", "'ll", " they", "'", "LL"));
  EXPECT_THAT(Pieces("gpt-2", "a   b \n "), ElementsAre("a", "  ", " b", " \n "));
  EXPECT_THAT(Pieces("gpt-2", ""), ElementsAre());
}

TEST(PreTokenizerTest, SmolLmSplitsDigitsFirst) {
  EXPECT_THAT(Pieces("smollm", "x 12\u00BD 3"),
              ElementsAre("x", " ", "1", "2", "\u00BD", " ", "3"));
}

TEST(PreTokenizerTest, LlamaBpeTakesDigitsByThreeAndContractionsInAnyCase) {
  EXPECT_THAT(Pieces("llama-bpe", "I'LL 1234\n\n x"),
              ElementsAre("I", "'LL", " ", "123", "4", "\n\n", " x"));
}

TEST(PreTokenizerTest, Qwen2TakesDigitsOneByOne) {
  for (const char* name : {"qwen2", "stablelm2"}) {
    EXPECT_THAT(Pieces(name, "I'LL 12\n\n x"),
                ElementsAre("I", "'LL", " ", "1", "2", "\n\n", " x"));
  }
}

TEST(PreTokenizerTest, TekkenSplitsWhereCaseRises) {
  EXPECT_THAT(Pieces("tekken", "helloWorld HTTPServer 12 a/b//\n"),
              ElementsAre("hello", "World", " HTTPServer", " ", "1", "2", " a", "/b", "//\n"));
  EXPECT_THAT(Pieces("tekken", "don't"), ElementsAre("don", "'t"));
  EXPECT_THAT(Pieces("tekken", "\u4F60\u597D\u00E9A"), ElementsAre("\u4F60\u597D\u00E9", "A"));
}

TEST(PreTokenizerTest, Gpt4oKeepsContractionsAndThreeDigits) {
  EXPECT_THAT(Pieces("gpt-4o", "Don'T 1234 aB"), ElementsAre("Don'T", " ", "123", "4", " a", "B"));
}

TEST(PreTokenizerTest, DefaultCutsPunctuationAndThreeDigits) {
  EXPECT_THAT(Pieces("default", "a+b <= 12345!? it's"),
              ElementsAre("a", "+", "b", " ", "<=", " ", "123", "45", "!?", " it", "'", "s"));
}

TEST(PreTokenizerTest, VikingCutsAtPunctuation) {
  EXPECT_THAT(Pieces("viking", "one two1,2"), ElementsAre("one", " two", "1", ",", "2"));
}

// White space is Unicode's White_Space: U+0085 and U+3000 are, U+180E and U+200B are not.
TEST(PreTokenizerTest, SpacesAreUnicodes) {
  EXPECT_THAT(Pieces("gpt-2", "\u0085\u3000"), ElementsAre("\u0085\u3000"));
  EXPECT_THAT(Pieces("gpt-2", " \u180E"), ElementsAre(" \u180E"));
  EXPECT_THAT(Pieces("gpt-2", " \u200B"), ElementsAre(" \u200B"));
  EXPECT_THAT(Pieces("gpt-2", "\u180E "), ElementsAre("\u180E", " "));
}

TEST(PreTokenizerTest, InvalidBytesArePiecesOfTheirOwn) {
  EXPECT_THAT(Pieces("gpt-2", "ab\xFF\xFE cd"), ElementsAre("ab", "\xFF\xFE", " cd"));
  EXPECT_THAT(Pieces("gpt-2", "\xE4\xBD"), ElementsAre("\xE4\xBD"));
  EXPECT_THAT(Pieces("gpt-2", "\x80  x"), ElementsAre("\x80", " ", " x"));
}

TEST(PreTokenizerTest, PiecesAddUpToTheText) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (const absl::string_view name : PreTokenizer::KnownNames()) {
    for (int round = 0; round < 60; ++round) {
      const std::string text =
          RandomText(rng, rng() % 40) + RandomBytes(rng, rng() % 20) + RandomText(rng, rng() % 40);
      std::string joined;
      for (const std::string& piece : Pieces(name, text)) {
        EXPECT_FALSE(piece.empty());
        joined += piece;
      }
      EXPECT_EQ(joined, text);
    }
  }
}

TEST(PreTokenizerTest, UnknownNamesListTheKnown) {
  const absl::Status status = PreTokenizer::Create("gpt-5").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              ::testing::StartsWith("key 'tokenizer.ggml.pre': pre-tokeniser 'gpt-5' is not known; "
                                    "known: default, gpt-2, "));
  for (const char* name : {"gpt-2", "phi-2", "llama-bpe", "llama3", "qwen2", "smollm", "default",
                           "chatglm-bpe", "glm4", "tekken", "starcoder", "refact", "olmo", "dbrx",
                           "stablelm2", "command-r", "gpt-4o"}) {
    EXPECT_TRUE(PreTokenizer::Create(name).ok()) << name;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(name));
  }
}

TEST(PreTokenizerTest, StopsAtTheSinksError) {
  const auto pre_tokenizer = PreTokenizer::Create("smollm");
  int calls = 0;
  const absl::Status status = (*pre_tokenizer)->Split("1 2 3", [&](absl::string_view) {
    ++calls;
    return absl::CancelledError();
  });
  EXPECT_TRUE(absl::IsCancelled(status));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tokend::tokenizer
