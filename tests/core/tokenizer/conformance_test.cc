// Token ids that others have computed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/core/tokenizer/test_vocabularies.h"
#include "tests/support/test_files.h"

namespace tokend::tokenizer {
namespace {

using ::nlohmann::json;
using ::tokend::testing::ReadFile;
using ::tokend::testing::SharedFile;

std::vector<int32_t> ParseIds(absl::string_view line) {
  std::vector<int32_t> ids;
  for (absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    int32_t id = -1;
    EXPECT_TRUE(absl::SimpleAtoi(word, &id)) << word;
    ids.push_back(id);
  }
  return ids;
}

void ExpectIds(const Tokenizer& tokenizer, const std::string& text, bool parse_special,
               const std::vector<int32_t>& expected) {
  const auto ids = tokenizer.Encode(text, {.parse_special = parse_special});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, expected) << json(text);
  EXPECT_EQ(*tokenizer.Detokenize(*ids, false), text);
}

class GgmlVocabularyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GgmlVocabularyTest, TokenIds) {
  const std::string name = absl::StrCat("tokenizers/ggml-vocab-", GetParam(), ".gguf");
  const auto path = SharedFile(name);
  if (!path.has_value()) GTEST_SKIP() << "no ../shared/" << name;
  const auto tokenizer = FromPath(*path);
  const std::string input = ReadFile(*path + ".inp");
  const std::string output = ReadFile(*path + ".out");
  std::vector<std::string> texts = absl::StrSplit(input, "\n__ggml_vocab_test__\n");
  std::vector<std::string> lines = absl::StrSplit(output, '\n');
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back(), "");
  lines.pop_back();
  EXPECT_EQ(texts.back(), "");  // behind the last marker
  texts.pop_back();
  ASSERT_EQ(texts.size(), lines.size());
  EXPECT_GT(texts.size(), 40u);
  for (size_t i = 0; i < texts.size(); ++i) {
    ExpectIds(*tokenizer, texts[i], false, ParseIds(lines[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgmlVocabularyTest,
                         ::testing::Values("gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2"),
                         [](const auto& vocabulary) {
                           std::string name = vocabulary.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class TinyModelVocabularyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyModelVocabularyTest, TokenIds) {
  const std::string name = absl::StrCat("tiny_models/", GetParam(), ".gguf");
  const auto path = SharedFile(name);
  const auto cases = SharedFile("tiny_models/tokenizer_cases.json");
  if (!path.has_value() || !cases.has_value()) GTEST_SKIP() << "no ../shared/" << name;
  const auto tokenizer = FromPath(*path);
  const json golden = json::parse(ReadFile(*cases));
  ASSERT_FALSE(golden.at("cases").empty());
  for (const json& item : golden.at("cases")) {
    ExpectIds(*tokenizer, item.at("text"), true, item.at("ids"));
  }
  for (const std::string special : golden.at("special_tokens")) {
    EXPECT_TRUE(tokenizer->FindSpecial(special).has_value()) << special;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TinyModelVocabularyTest,
                         ::testing::Values("llama", "llama3", "mistral", "gemma3", "glm4_chat",
                                           "gpt2", "phi3", "phi3_longrope", "qwen2", "qwen3"));

// GPT-2's vocabulary under each pre-tokeniser's name: what differs is how text is cut.
TEST(PreTokenizerNamesTest, TokenIds) {
  const json golden = json::parse(ReadFile("tests/golden/pre_tokenizers.json"));
  const std::string name = golden.at("vocabulary");
  const auto path = SharedFile(name);
  if (!path.has_value()) GTEST_SKIP() << "no ../shared/" << name;
  const auto file = gguf::File::Open(*path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto strings = [&](absl::string_view key) {
    const auto views = (*file)->GetStrings(key);
    EXPECT_TRUE(views.ok()) << views.status();
    return std::vector<std::string>(views->begin(), views->end());
  };
  const std::vector<std::string> tokens = strings("tokenizer.ggml.tokens");
  const std::vector<std::string> merges = strings("tokenizer.ggml.merges");
  for (const auto& [pre_tokenizer, ids] : golden.at("ids").items()) {
    SCOPED_TRACE(pre_tokenizer);
    testing::GgufWriter writer;
    writer.String("tokenizer.ggml.model", "gpt2").String("tokenizer.ggml.pre", pre_tokenizer);
    writer.Strings("tokenizer.ggml.tokens", tokens).Strings("tokenizer.ggml.merges", merges);
    const auto tokenizer = FromBytes(writer.Build());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    ASSERT_EQ(ids.size(), golden.at("texts").size());
    for (size_t i = 0; i < ids.size(); ++i) {
      ExpectIds(**tokenizer, golden.at("texts")[i], false, ids[i]);
    }
  }
}

class Gemma3Test : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = testing::Gemma3File();
    if (!path.has_value()) GTEST_SKIP() << "no Gemma 3 270M: ./dev model gemma3";
    const auto file = gguf::File::OpenMetadata(*path);
    ASSERT_TRUE(file.ok()) << file.status();
    auto tokenizer = Tokenizer::Create(**file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(Gemma3Test, TokenIds) {
  const json golden = json::parse(ReadFile("tests/golden/gemma3_tokenizer.json"));
  ASSERT_GT(golden.at("cases").size(), 40u);
  for (const json& item : golden.at("cases")) {
    const auto ids = tokenizer_->Encode(item.at("text").get<std::string>(),
                                        {.parse_special = item.at("parse_special")});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, item.at("ids").get<std::vector<int32_t>>()) << item.at("text");
  }
}

TEST_F(Gemma3Test, Roles) {
  EXPECT_EQ(tokenizer_->vocabulary_size(), 262144);
  EXPECT_EQ(tokenizer_->bos_id(), 2);
  EXPECT_EQ(tokenizer_->eos_id(), 1);
  EXPECT_TRUE(tokenizer_->uses_bos());
  EXPECT_FALSE(tokenizer_->uses_eos());
  const auto end_of_turn = tokenizer_->FindSpecial("<end_of_turn>");
  ASSERT_TRUE(end_of_turn.has_value());
  EXPECT_TRUE(tokenizer_->IsEndOfText(*end_of_turn));
  EXPECT_TRUE(tokenizer_->FindSpecial("<start_of_turn>").has_value());
}

class SmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = testing::SmolLm2File();
    if (!path.has_value()) {
      GTEST_SKIP() << "no SmolLM2-135M-Instruct: ./dev model smollm2, or $TOKEND_TEST_MODEL";
    }
    tokenizer_ = FromPath(*path);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(SmolLm2Test, TokenIds) {
  const json golden = json::parse(ReadFile("tests/golden/smollm2/tokenizer.json"));
  ASSERT_GT(golden.at("cases").size(), 50u);
  for (const json& item : golden.at("cases")) {
    ExpectIds(*tokenizer_, item.at("text"), item.at("parse_special"), item.at("ids"));
  }
}

TEST_F(SmolLm2Test, Roles) {
  EXPECT_EQ(tokenizer_->vocabulary_size(), 49152);
  EXPECT_EQ(tokenizer_->end_of_text_ids(), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(tokenizer_->bos_id(), 1);
  EXPECT_FALSE(tokenizer_->uses_bos());
  EXPECT_FALSE(tokenizer_->Encode("bell \x06").ok());  // not in its vocabulary
}

}  // namespace
}  // namespace tokend::tokenizer
