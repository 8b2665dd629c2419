// Vocabularies out of the ordinary, sound and damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/gguf/errors.h"
#include "core/tokenizer/byte_alphabet.h"
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

struct Parts {
  std::vector<std::string> tokens = {"a", "b", "c", "ab", "abc"};
  std::vector<int32_t> types = {kNormal, kNormal, kNormal, kNormal, kNormal};
  std::vector<std::string> merges = {"a b", "ab c"};
  std::string model = "gpt2";
  std::string pre = "gpt-2";

  testing::GgufWriter Writer() const {
    testing::GgufWriter writer;
    writer.String("tokenizer.ggml.model", model).String("tokenizer.ggml.pre", pre);
    writer.Strings("tokenizer.ggml.tokens", tokens).I32s("tokenizer.ggml.token_type", types);
    writer.Strings("tokenizer.ggml.merges", merges);
    return writer;
  }
};

void ExpectBad(const testing::GgufWriter& writer, const std::string& message) {
  const absl::Status status = FromBytes(writer.Build()).status();
  EXPECT_TRUE(gguf::IsBadModelFile(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(VocabularyTest, AByteWithoutATokenIsAnErrorThatNamesIt) {
  const auto tokenizer = FromBytes(Parts().Writer().Build());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("abcab"), ElementsAre(4, 3));
  const absl::Status status = (*tokenizer)->Encode("abcabx").status();
  EXPECT_EQ(base::GetErrorReason(status), base::ErrorReason::kInvalidField);
  EXPECT_EQ(status.message(),
            "text: byte 0x78 at offset 5 has no token in this model's vocabulary");
}

TEST(VocabularyTest, UserDefinedTokensAreReadInAnyText) {
  Parts parts;
  for (const char* name : {"bc", "bcb", "<|tool|>"}) {
    parts.tokens.push_back(name);
    parts.types.push_back(kUserDefined);
  }
  const auto tokenizer = FromBytes(parts.Writer().Build());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("abcbabc"), ElementsAre(0, 6, 0, 5));  // leftmost, longest
  EXPECT_FALSE((*tokenizer)->IsSpecial(5));
  // One that looks like a control token is treated as one.
  EXPECT_TRUE((*tokenizer)->IsSpecial(7));
  EXPECT_FALSE((*tokenizer)->Encode("<|tool|>").ok());
  EXPECT_THAT(*(*tokenizer)->Encode("<|tool|>", {.parse_special = true}), ElementsAre(7));
}

TEST(VocabularyTest, MergesNeverMakeASpecialToken) {
  Parts parts;
  parts.types[3] = kControl;  // "ab", which a merge of the file would make
  const auto tokenizer = FromBytes(parts.Writer().Build());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("abc"), ElementsAre(0, 1, 2));
  EXPECT_THAT(*(*tokenizer)->Encode("abc", {.parse_special = true}), ElementsAre(3, 2));
}

TEST(VocabularyTest, MergesOfPrunedTokensNeverApply) {
  Parts parts;
  parts.merges = {"b c", "a b", "x y"};
  const auto tokenizer = FromBytes(parts.Writer().Build());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("abc"), ElementsAre(3, 2));
}

TEST(VocabularyTest, OddTokensKeepTheirBytes) {
  Parts parts;
  parts.tokens.insert(parts.tokens.end(), {"\u4F60", "", "<0x0A>", "[UNK]", "[PAD]"});
  parts.types.insert(parts.types.end(), {kNormal, kNormal, kByte, kUnknown, kUnused});
  const auto tokenizer = FromBytes(parts.Writer().Build());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->TokenBytes(5), "\u4F60");  // outside the byte alphabet
  EXPECT_EQ((*tokenizer)->TokenBytes(6), "");
  EXPECT_EQ((*tokenizer)->TokenBytes(7), "\n");
  EXPECT_TRUE((*tokenizer)->IsSpecial(8));
  EXPECT_FALSE((*tokenizer)->IsSpecial(9));
}

TEST(VocabularyTest, UnknownKindsListTheKnown) {
  Parts parts;
  parts.model = "rwkv";
  ExpectBad(parts.Writer(), "tokeniser 'rwkv' is not known; known: gpt2, llama");
  parts.model = "gpt2";
  parts.pre = "nope";
  ExpectBad(parts.Writer(), "pre-tokeniser 'nope' is not known; known: default, gpt-2, phi-2");
  testing::GgufWriter empty;
  ExpectBad(empty, "key 'tokenizer.ggml.model': missing from the file");
}

TEST(VocabularyTest, DamagedTokens) {
  Parts none;
  none.tokens.clear();
  none.types.clear();
  ExpectBad(none.Writer(), "a vocabulary of 0 tokens");
  Parts fewer;
  fewer.types.pop_back();
  ExpectBad(fewer.Writer(), "4 types for 5 tokens");
  for (int32_t type : {0, 7, -1}) {
    Parts unknown;
    unknown.types[2] = type;
    ExpectBad(unknown.Writer(), "token 2 has the unknown type " + std::to_string(type));
  }
  Parts byte;
  byte.types[1] = kByte;
  ExpectBad(byte.Writer(),
            "key 'tokenizer.ggml.tokens': token 1, 'b', is marked as a byte but is not <0xHH>");
  testing::GgufWriter numbers;
  numbers.String("tokenizer.ggml.model", "gpt2").I32s("tokenizer.ggml.tokens", {1, 2});
  ExpectBad(numbers, "its type is array of i32, wanted array of string");
}

TEST(VocabularyTest, RepeatedTokens) {
  Parts plain;
  plain.tokens[2] = "a";
  ExpectBad(plain.Writer(), "token 2, 'a', is token 0 too");
  Parts control;
  control.tokens.insert(control.tokens.end(), {"<x>", "<x>"});
  control.types.insert(control.types.end(), {kControl, kControl});
  ExpectBad(control.Writer(), "token 6, '<x>', is token 5 too");
  Parts longer;
  longer.tokens.push_back(std::string(300, '<'));
  longer.types.push_back(kControl);
  ExpectBad(longer.Writer(), "token 5 is a special token of 300 bytes");
}

TEST(VocabularyTest, DamagedMerges) {
  for (const char* merge : {"ab", "", " ", "a ", " b", "a b c", "a \u4F60"}) {
    Parts parts;
    parts.merges = {"a b", merge};
    ExpectBad(parts.Writer(), "is not two tokens");
  }
  Parts twice;
  twice.merges = {"a b", "ab c", "a b"};
  ExpectBad(twice.Writer(), "merge 2, 'a b', is there twice");
}

TEST(VocabularyTest, RolesOutsideTheVocabulary) {
  for (const char* role : {"bos", "eos", "eot", "eom"}) {
    for (uint32_t id : {5u, 0x7fffffffu, 0xffffffffu}) {
      testing::GgufWriter writer = Parts().Writer();
      writer.U32("tokenizer.ggml." + std::string(role) + "_token_id", id);
      ExpectBad(writer, "token " + std::to_string(id) + " is outside the vocabulary of 5 tokens");
    }
  }
  testing::GgufWriter negative = Parts().Writer();
  negative.I32("tokenizer.ggml.eos_token_id", -1);
  ExpectBad(negative, "its value -1 does not fit u32");
  testing::GgufWriter flag = Parts().Writer();
  flag.Bool("tokenizer.ggml.add_bos_token", true);
  ExpectBad(flag, "true, but the file names no such token");
}

TEST(ByteAlphabetTest, EveryByteThereAndBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const std::string text = ToByteAlphabet(bytes);
  EXPECT_EQ(FromByteAlphabet(text), bytes);
  EXPECT_EQ(ToByteAlphabet(" \nA"), "\u0120\u010AA");
  for (const char* outside :
       {" ", "\n", "\u00AD", "\u0144", "\u4F60", "\xC3", "\xFF", "\xC1\x81"}) {
    EXPECT_EQ(FromByteAlphabet(outside), std::nullopt) << outside;
  }
}

}  // namespace
}  // namespace tokend::tokenizer
