#include "core/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/error.h"
#include "core/tokenizer/pre_tokenizer.h"
#include "tests/core/tokenizer/test_vocabularies.h"

namespace tokend::tokenizer {
namespace {

using ::testing::ElementsAre;

// Ids of the tiny vocabulary.
constexpr int32_t kBos = 0;
constexpr int32_t kEos = 1;
constexpr int32_t kImStart = 2;
constexpr int32_t kImEnd = 3;
constexpr int32_t Byte(char c) { return 4 + static_cast<unsigned char>(c); }
constexpr int32_t kT = 260;    // " t"
constexpr int32_t kHe = 261;   // "he"
constexpr int32_t kThe = 262;  // " the"
constexpr int32_t kIn = 263;   // "in"
constexpr int32_t kEr = 264;   // "er"

std::vector<int32_t> Ids(const Tokenizer& tokenizer, absl::string_view text,
                         const EncodeOptions& options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.value_or(std::vector<int32_t>{});
}

TEST(TokenizerTest, MergesByRank) {
  const auto tokenizer = TinyTokenizer();
  EXPECT_EQ(tokenizer->vocabulary_size(), testing::kTinyVocabularySize);
  EXPECT_THAT(Ids(*tokenizer, " the"), ElementsAre(kThe));
  EXPECT_THAT(Ids(*tokenizer, "the"), ElementsAre(Byte('t'), kHe));
  // "he" has a lower rank than "er": the e is taken.
  EXPECT_THAT(Ids(*tokenizer, " ther"), ElementsAre(kThe, Byte('r')));
  EXPECT_THAT(Ids(*tokenizer, "er in t"), ElementsAre(kEr, Byte(' '), kIn, kT));
  EXPECT_THAT(Ids(*tokenizer, ""), ElementsAre());
  EXPECT_THAT(Ids(*tokenizer, "\xFF"), ElementsAre(Byte('\xFF')));
}

TEST(TokenizerTest, SpecialTokensOnlyOnRequest) {
  const auto tokenizer = TinyTokenizer();
  const EncodeOptions parse = {.parse_special = true};
  EXPECT_THAT(Ids(*tokenizer, "<|im_start|>he<|im_end|>", parse),
              ElementsAre(kImStart, kHe, kImEnd));
  EXPECT_THAT(Ids(*tokenizer, "<|im_<|im_end|>end|>", parse),
              ElementsAre(Byte('<'), Byte('|'), Byte('i'), Byte('m'), Byte('_'), kImEnd, Byte('e'),
                          Byte('n'), Byte('d'), Byte('|'), Byte('>')));
  for (int32_t id : Ids(*tokenizer, "<|im_start|><|im_end|><|bos|><|eos|>")) {
    EXPECT_FALSE(tokenizer->IsSpecial(id));
  }
}

TEST(TokenizerTest, TokensAndTheirRoles) {
  const auto tokenizer = TinyTokenizer();
  EXPECT_EQ(tokenizer->TokenBytes(kImEnd), "<|im_end|>");
  EXPECT_EQ(tokenizer->TokenBytes(kThe), " the");
  EXPECT_EQ(tokenizer->TokenBytes(Byte('\0')), absl::string_view("\0", 1));
  EXPECT_EQ(tokenizer->bos_id(), kBos);
  EXPECT_EQ(tokenizer->eos_id(), kEos);
  EXPECT_THAT(tokenizer->end_of_text_ids(), ElementsAre(kEos, kImEnd));
  EXPECT_TRUE(tokenizer->IsEndOfText(kImEnd));
  EXPECT_FALSE(tokenizer->IsEndOfText(kImStart));
  EXPECT_TRUE(tokenizer->IsSpecial(kImStart));
  EXPECT_FALSE(tokenizer->IsSpecial(kThe));
  EXPECT_EQ(tokenizer->FindSpecial("<|im_start|>"), kImStart);
  EXPECT_EQ(tokenizer->FindSpecial("<|im"), std::nullopt);
  EXPECT_EQ(tokenizer->FindSpecial(" the"), std::nullopt);
  EXPECT_TRUE(tokenizer->IsValid(0));
  EXPECT_TRUE(tokenizer->IsValid(264));
  EXPECT_FALSE(tokenizer->IsValid(265));
  EXPECT_FALSE(tokenizer->IsValid(-1));
}

TEST(TokenizerTest, BosAndEosIfTheModelUsesThem) {
  const EncodeOptions both = {.add_bos = true, .add_eos = true};
  EXPECT_THAT(Ids(*TinyTokenizer(), "he", both), ElementsAre(kHe));
  testing::GgufWriter writer;
  testing::AddTinyVocabulary(writer, "llama-bpe");
  writer.Bool("tokenizer.ggml.add_eos_token", true);
  const auto tokenizer = FromBytes(writer.Build());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_FALSE((*tokenizer)->uses_bos());  // the file says so
  EXPECT_TRUE((*tokenizer)->uses_eos());
  EXPECT_THAT(Ids(**tokenizer, "he", both), ElementsAre(kHe, kEos));
  EXPECT_THAT(Ids(**tokenizer, "he"), ElementsAre(kHe));
}

TEST(TokenizerTest, Detokenize) {
  const auto tokenizer = TinyTokenizer();
  const std::vector<int32_t> ids = {kImStart, kHe, kThe, kImEnd, Byte('\xFF')};
  EXPECT_EQ(*tokenizer->Detokenize(ids, false), "<|im_start|>he the<|im_end|>\xFF");
  EXPECT_EQ(*tokenizer->Detokenize(ids, true), "he the\xFF");
  for (int32_t bad : {-1, 265, INT32_MAX, INT32_MIN}) {
    const absl::Status status = tokenizer->Detokenize({kHe, bad}, false).status();
    EXPECT_EQ(base::GetErrorReason(status), base::ErrorReason::kInvalidField);
    EXPECT_EQ(status.message(),
              "token_ids: number 1 is " + std::to_string(bad) + ", outside [0, 265)");
  }
}

TEST(TokenizerTest, AnyBytesComeBack) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (const absl::string_view pre_tokenizer : PreTokenizer::KnownNames()) {
    const auto tokenizer = TinyTokenizer(pre_tokenizer);
    for (int round = 0; round < 60; ++round) {
      const std::string text =
          round % 2 == 0 ? RandomText(rng, rng() % 100) : RandomBytes(rng, rng() % 100);
      const std::vector<int32_t> ids = Ids(*tokenizer, text);
      EXPECT_EQ(*tokenizer->Detokenize(ids, false), text);
      // Reading special tokens changes nothing about what comes back.
      const std::string marked = text + "<|im_end|>" + text;
      EXPECT_EQ(*tokenizer->Detokenize(Ids(*tokenizer, marked, {.parse_special = true}), false),
                marked);
    }
  }
}

// A quarter MiB of one thing: quadratic work would run into the test's time limit.
TEST(TokenizerTest, LongRuns) {
  const size_t size = 1 << 18;
  for (const char* pre_tokenizer :
       {"gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o", "default", "viking"}) {
    const auto tokenizer = TinyTokenizer(pre_tokenizer);
    for (const char* unit : {"a", "A", " ", "7", "\n", "!", "he", "\U0001F600", "\xFF",
                             "\xE4\xBD\xA0", "a\xFF", "<", "<|im_start|", " \n", "'s"}) {
      std::string text;
      while (text.size() < size) text += unit;
      const std::vector<int32_t> ids = Ids(*tokenizer, text, {.parse_special = true});
      EXPECT_EQ(*tokenizer->Detokenize(ids, false), text) << unit;
    }
  }
}

}  // namespace
}  // namespace tokend::tokenizer
