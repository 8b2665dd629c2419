// SentencePiece's byte pairs against the definition, written plainly, and their rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/error.h"
#include "core/gguf/errors.h"
#include "core/tokenizer/incremental_decoder.h"
#include "tests/core/tokenizer/test_vocabularies.h"

namespace tokend::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kNormal = 1;
constexpr int32_t kUnknown = 2;
constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;
constexpr int32_t kUnused = 5;
constexpr int32_t kByte = 6;
constexpr char kSpace[] = "\u2581";

// <unk>, <s>, </s>, 256 bytes, then whatever is added.
struct Pieces {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {kUnknown, kControl, kControl};
  std::vector<float> scores = {0, 0, 0};

  Pieces() {
    for (int byte = 0; byte < 256; ++byte) Add(absl::StrFormat("<0x%02X>", byte), 0, kByte);
  }

  int32_t Add(const std::string& token, float score, int32_t type = kNormal) {
    tokens.push_back(token);
    scores.push_back(score);
    types.push_back(type);
    return static_cast<int32_t>(tokens.size()) - 1;
  }

  testing::GgufWriter Writer() const {
    testing::GgufWriter writer;
    writer.String("tokenizer.ggml.model", "llama").Strings("tokenizer.ggml.tokens", tokens);
    writer.I32s("tokenizer.ggml.token_type", types).F32s("tokenizer.ggml.scores", scores);
    return writer;
  }

  std::unique_ptr<Tokenizer> Load(bool space_prefix) const {
    testing::GgufWriter writer = Writer();
    writer.Bool("tokenizer.ggml.add_space_prefix", space_prefix);
    auto tokenizer = FromBytes(writer.Build());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return *std::move(tokenizer);
  }
};

constexpr int32_t Byte(int byte) { return 3 + byte; }

std::vector<int32_t> Ids(const Tokenizer& tokenizer, absl::string_view text,
                         const EncodeOptions& options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.value_or(std::vector<int32_t>{});
}

// Join after join: the best score there is, at its leftmost place.
std::vector<std::string> JoinPlainly(const std::map<std::string, float>& scores,
                                     const std::string& text) {
  std::vector<std::string> symbols;
  for (char c : text) symbols.emplace_back(1, c);
  while (true) {
    size_t best_at = symbols.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = scores.find(symbols[i] + symbols[i + 1]);
      if (it == scores.end()) continue;
      if (best_at == symbols.size() ||
          it->second > scores.at(symbols[best_at] + symbols[best_at + 1])) {
        best_at = i;
      }
    }
    if (best_at == symbols.size()) return symbols;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(SentencePieceTest, MatchesTheDefinition) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 40; ++round) {
    Pieces pieces;
    std::map<std::string, float> scores;
    const auto add = [&](const std::string& token) {
      const float score = static_cast<float>(rng() % 9) - 4;  // many ties, both signs
      if (scores.emplace(token, score).second) pieces.Add(token, score);
    };
    for (const char* letter : {"a", "b", "c", "d"}) add(letter);
    for (uint64_t count = rng() % 30 + 1; count > 0; --count) {
      std::string token;
      for (uint64_t size = rng() % 5 + 2; size > 0; --size) token.push_back("abcd"[rng() % 4]);
      add(token);
    }
    const auto tokenizer = pieces.Load(false);
    for (int text_round = 0; text_round < 40; ++text_round) {
      std::string text;
      for (uint64_t size = rng() % 40; size > 0; --size) text.push_back("abcd"[rng() % 4]);
      std::vector<std::string> symbols;
      for (int32_t id : Ids(*tokenizer, text)) symbols.emplace_back(tokenizer->TokenBytes(id));
      EXPECT_EQ(symbols, JoinPlainly(scores, text)) << text;
    }
  }
}

TEST(SentencePieceTest, SpacePrefixAtTheStartAndBehindSpecialTokens) {
  Pieces pieces;
  const int32_t space = pieces.Add(kSpace, -5);
  const int32_t a = pieces.Add("a", -6);
  const int32_t space_a = pieces.Add(std::string(kSpace) + "a", -1);
  const auto with = pieces.Load(true);
  const EncodeOptions parse = {.parse_special = true};
  EXPECT_THAT(Ids(*with, ""), ElementsAre());
  EXPECT_THAT(Ids(*with, "aa"), ElementsAre(space_a, a));
  EXPECT_THAT(Ids(*with, " a"), ElementsAre(space, space_a));
  EXPECT_THAT(Ids(*with, "a</s>a", parse), ElementsAre(space_a, 2, space_a));
  EXPECT_THAT(Ids(*with, "a</s></s> a", parse), ElementsAre(space_a, 2, 2, space, space_a));
  EXPECT_THAT(Ids(*with, "aa", {.at_start = false}), ElementsAre(a, a));
  EXPECT_EQ(*with->Detokenize({space_a, 2, space_a, space_a}, false), "a</s>a a");
  EXPECT_EQ(*with->Detokenize({space_a, 2, space_a, space_a}, true), "aa a");
  EXPECT_EQ(*with->RawBytes({space_a, 2, space_a}), " a</s> a");
  const auto without = pieces.Load(false);
  EXPECT_THAT(Ids(*without, "aa"), ElementsAre(a, a));
  EXPECT_EQ(*without->Detokenize({space_a, a}, false), " aa");
  const auto by_default = FromBytes(pieces.Writer().Build());
  ASSERT_TRUE(by_default.ok()) << by_default.status();
  EXPECT_THAT(Ids(**by_default, "a"), ElementsAre(space_a));
}

TEST(SentencePieceTest, WhatHasNoTokenBecomesBytes) {
  Pieces pieces;
  const int32_t a = pieces.Add("a", -1);
  const auto tokenizer = pieces.Load(false);
  EXPECT_THAT(Ids(*tokenizer, "a\u00E9\xFF"), ElementsAre(a, Byte(0xC3), Byte(0xA9), Byte(0xFF)));
  // The names of byte tokens are not what they stand for.
  EXPECT_EQ(Ids(*tokenizer, "<0x41>").size(), 6u);
  IncrementalDecoder decoder(tokenizer.get());
  EXPECT_EQ(decoder.Feed(Byte(0xC3)).text, "");
  EXPECT_EQ(decoder.Feed(Byte(0xA9)).text, "\u00E9");
}

TEST(SentencePieceTest, AByteWithoutATokenIsAnErrorThatNamesIt) {
  testing::GgufWriter writer;
  writer.String("tokenizer.ggml.model", "llama");
  writer.Strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a", kSpace});
  writer.I32s("tokenizer.ggml.token_type", {kUnknown, kControl, kControl, kNormal, kNormal});
  writer.F32s("tokenizer.ggml.scores", {0, 0, 0, -1, -2});
  const auto tokenizer = FromBytes(writer.Build());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(Ids(**tokenizer, "a"), ElementsAre(4, 3));
  // Behind the prefix, an escaped space of three bytes and the start of another fragment.
  const absl::Status status =
      (*tokenizer)->Encode("a</s>a\u2581x", {.parse_special = true}).status();
  EXPECT_EQ(base::GetErrorReason(status), base::ErrorReason::kInvalidField);
  EXPECT_EQ(status.message(),
            "text: byte 0x78 at offset 9 has no token in this model's vocabulary");
}

TEST(SentencePieceTest, UserTextNeverBecomesASpecialToken) {
  Pieces pieces;
  for (const char* token : {"<", "s", ">", "/", "s>", "<s", "/s>"}) pieces.Add(token, -1);
  const int32_t turn = pieces.Add("<end_of_turn>", -1, kUserDefined);
  const int32_t tag = pieces.Add("<b>", -1, kUserDefined);
  const auto tokenizer = pieces.Load(true);
  for (int32_t id : Ids(*tokenizer, "<s></s><unk><end_of_turn>")) {
    EXPECT_FALSE(tokenizer->IsSpecial(id)) << tokenizer->TokenBytes(id);
  }
  EXPECT_TRUE(tokenizer->IsEndOfText(turn));
  EXPECT_FALSE(tokenizer->IsSpecial(tag));
  EXPECT_THAT(Ids(*tokenizer, "<b><s>", {.parse_special = true}), ElementsAre(tag, 1));
  EXPECT_EQ(Ids(*tokenizer, "<b>").front(), tag);
}

TEST(SentencePieceTest, UnusedTokensAreTakenApartAgain) {
  Pieces pieces;
  const int32_t a = pieces.Add("a", -9);
  const int32_t ab = pieces.Add("ab", -1, kUnused);
  const int32_t abc = pieces.Add("abc", -2);
  const int32_t b = pieces.Add("b", -9);
  const int32_t c = pieces.Add("c", -9);
  const auto tokenizer = pieces.Load(false);
  EXPECT_THAT(Ids(*tokenizer, "ab"), ElementsAre(a, b));
  EXPECT_THAT(Ids(*tokenizer, "abcab"), ElementsAre(abc, a, b));  // a step on the way
  EXPECT_THAT(Ids(*tokenizer, "acb"), ElementsAre(a, c, b));
  EXPECT_EQ(tokenizer->TokenBytes(ab), "ab");
}

TEST(SentencePieceTest, UserDefinedSpacesAreSpaces) {
  Pieces pieces;
  const int32_t two = pieces.Add(std::string(kSpace) + kSpace, -1, kUserDefined);
  const int32_t three = pieces.Add("   ", -1, kUserDefined);
  const auto tokenizer = pieces.Load(false);
  EXPECT_THAT(Ids(*tokenizer, "     "), ElementsAre(three, two));
}

TEST(SentencePieceTest, BosAndEos) {
  const EncodeOptions both = {.add_bos = true, .add_eos = true};
  const auto usual = Pieces().Load(true);
  EXPECT_THAT(Ids(*usual, "", both), ElementsAre(1));
  EXPECT_EQ(usual->eos_id(), 2);
  testing::GgufWriter writer = Pieces().Writer();
  writer.U32("tokenizer.ggml.bos_token_id", 2).Bool("tokenizer.ggml.add_bos_token", false);
  writer.U32("tokenizer.ggml.eos_token_id", 1).Bool("tokenizer.ggml.add_eos_token", true);
  const auto other = FromBytes(writer.Build());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(Ids(**other, "", both), ElementsAre(1));
  EXPECT_EQ((*other)->bos_id(), 2);
}

TEST(SentencePieceTest, AnyBytesComeBack) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  Pieces pieces;
  for (const char* token : {kSpace, "a", "e", "t", "\u4F60"}) pieces.Add(token, -9);
  for (const char* token : {"\u2581a", "\u2581\u2581", "ae", "te", "\u2581\u2581\u2581"}) {
    pieces.Add(token, -static_cast<float>(rng() % 8));
  }
  for (const bool space_prefix : {false, true}) {
    const auto tokenizer = pieces.Load(space_prefix);
    for (int round = 0; round < 500; ++round) {
      const std::string text =
          round % 2 == 0 ? RandomText(rng, rng() % 100) : RandomBytes(rng, rng() % 100);
      const std::string marked = text + "</s>" + text;
      const std::string expected = UnescapeSpaces(marked);
      for (const bool parse : {false, true}) {
        const std::vector<int32_t> ids = Ids(*tokenizer, marked, {.parse_special = parse});
        EXPECT_EQ(*tokenizer->Detokenize(ids, false), expected);
      }
    }
  }
}

void ExpectBad(const testing::GgufWriter& writer, const std::string& message) {
  const absl::Status status = FromBytes(writer.Build()).status();
  EXPECT_TRUE(gguf::IsBadModelFile(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(SentencePieceTest, DamagedFiles) {
  Pieces fewer;
  fewer.scores.pop_back();
  ExpectBad(fewer.Writer(), "key 'tokenizer.ggml.scores': 258 scores for 259 tokens");
  Pieces infinite;
  infinite.scores[7] = std::numeric_limits<float>::infinity();
  ExpectBad(infinite.Writer(), "key 'tokenizer.ggml.scores'");
  testing::GgufWriter none;
  none.String("tokenizer.ggml.model", "llama").Strings("tokenizer.ggml.tokens", {"a"});
  ExpectBad(none, "key 'tokenizer.ggml.scores': missing from the file");
  Pieces twice;
  twice.Add("a", 0);
  twice.Add("a", 0);
  ExpectBad(twice.Writer(), "key 'tokenizer.ggml.tokens': token 260, 'a', is token 259 too");
  Pieces bytes;
  bytes.Add("<0x41>", 0, kByte);
  ExpectBad(bytes.Writer(), "token 259, 'A', is token 68 too");
  for (const char* name : {"<0x4>", "<0x4g>", "<0x+4>", "41"}) {
    Pieces byte;
    byte.Add(name, 0, kByte);
    ExpectBad(byte.Writer(), "is marked as a byte but is not <0xHH>");
  }
  testing::GgufWriter role = Pieces().Writer();
  role.U32("tokenizer.ggml.bos_token_id", 259);
  ExpectBad(role, "token 259 is outside the vocabulary of 259 tokens");
}

// A quarter MiB of one thing: quadratic work would run into the test's time limit.
TEST(SentencePieceTest, LongRuns) {
  Pieces pieces;
  for (const char* token : {"a", "aa", "aaaa", kSpace, "\u2581\u2581", "7", "77", "ab"}) {
    pieces.Add(token, -1);
  }
  const auto tokenizer = pieces.Load(true);
  for (const char* unit : {"a", " ", "7", "\n", "\U0001F600", "\u4F60", "\xFF", "ab", "<"}) {
    std::string text;
    while (text.size() < 1 << 18) text += unit;
    EXPECT_EQ(*tokenizer->Detokenize(Ids(*tokenizer, text), false), text) << unit;
  }
}

}  // namespace
}  // namespace tokend::tokenizer
