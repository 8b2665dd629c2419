#include "core/engine/output_pipeline.h"

#include <random>
#include <string>
#include <vector>

#include "core/tokenizer/utf8.h"
#include "gtest/gtest.h"
#include "tests/core/engine/harness.h"

namespace tokend::engine {
namespace {

using ::tokend::testing::ByteTokens;
using ::tokend::testing::TinyTokenizer;

std::string BytesOf(const std::vector<int32_t>& tokens) {
  std::string bytes;
  for (const int32_t token : tokens) {
    const absl::string_view piece = TinyTokenizer().TokenBytes(token);
    bytes.append(piece.data(), piece.size());
  }
  return bytes;
}

struct Sent {
  std::string text;
  std::string raw;
  std::vector<int32_t> tokens;

  void Add(const std::optional<Delta>& delta) {
    if (!delta.has_value()) return;
    EXPECT_EQ(delta->index, static_cast<int32_t>(tokens.size()));
    EXPECT_FALSE(delta->token_ids.empty());
    EXPECT_TRUE(tokenizer::IsUtf8(delta->text));
    EXPECT_TRUE(delta->text == delta->raw || !delta->text_is_exact);
    text += delta->text;
    raw += delta->raw;
    tokens.insert(tokens.end(), delta->token_ids.begin(), delta->token_ids.end());
  }
};

// Pushes tokens until a stop string matched or all are in, and takes all.
Sent Drain(OutputPipeline& pipeline, const std::vector<int32_t>& tokens) {
  Sent sent;
  for (const int32_t token : tokens) {
    const bool stop = pipeline.Push(token, std::nullopt);
    if (stop) break;
    sent.Add(pipeline.TakeReady());
    // The bytes of the tokens sent are the bytes sent.
    EXPECT_EQ(BytesOf(sent.tokens), sent.raw);
  }
  sent.Add(pipeline.TakeRest());
  return sent;
}

TEST(OutputPipelineTest, TokensGoOutAsTheyCome) {
  OutputPipeline pipeline(&TinyTokenizer(), {});
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(pipeline.Push(ByteTokens("abc")[i], std::nullopt));
    const auto delta = pipeline.TakeReady();
    ASSERT_TRUE(delta.has_value());
    EXPECT_EQ(delta->text, std::string(1, static_cast<char>('a' + i)));
    EXPECT_EQ(delta->index, i);
    EXPECT_EQ(pipeline.sent_tokens(), i + 1);
  }
  EXPECT_FALSE(pipeline.TakeRest().has_value());
}

TEST(OutputPipelineTest, UnfinishedCodePointsWaitWithTheirTokens) {
  OutputPipeline pipeline(&TinyTokenizer(), {});
  const auto tokens = ByteTokens("\xF0\x9F\x98\x80!");
  for (int i = 0; i < 3; ++i) {
    pipeline.Push(tokens[i], std::nullopt);
    EXPECT_FALSE(pipeline.TakeReady().has_value());
  }
  pipeline.Push(tokens[3], std::nullopt);
  const auto delta = pipeline.TakeReady();
  ASSERT_TRUE(delta.has_value());
  EXPECT_EQ(delta->text, "\xF0\x9F\x98\x80");
  EXPECT_EQ(delta->token_ids.size(), 4u);
}

TEST(OutputPipelineTest, InvalidBytesShowAsReplacementWithTheirRawBytes) {
  OutputPipeline pipeline(&TinyTokenizer(), {});
  const Sent sent = Drain(pipeline, ByteTokens("a\xFF"
                                               "b\xE2\x82"));
  EXPECT_EQ(sent.raw,
            "a\xFF"
            "b\xE2\x82");
  EXPECT_EQ(sent.text,
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

TEST(OutputPipelineTest, HeldTextComesOutWhenItIsNoStopString) {
  OutputPipeline pipeline(&TinyTokenizer(), {"<end>"});
  Sent sent;
  for (const int32_t token : ByteTokens("a<en")) {
    EXPECT_FALSE(pipeline.Push(token, std::nullopt));
    sent.Add(pipeline.TakeReady());
  }
  EXPECT_EQ(sent.text, "a");
  EXPECT_FALSE(pipeline.Push(ByteTokens("x")[0], std::nullopt));
  sent.Add(pipeline.TakeReady());
  EXPECT_EQ(sent.text, "a<enx");
  EXPECT_EQ(sent.tokens, ByteTokens("a<enx"));
}

TEST(OutputPipelineTest, HeldTextComesOutAtTheEnd) {
  OutputPipeline pipeline(&TinyTokenizer(), {"<end>"});
  EXPECT_EQ(Drain(pipeline, ByteTokens("a<en")).text, "a<en");
}

TEST(OutputPipelineTest, TheTokenThatAStopStringCutsIsKept) {
  // " the" is one token: the stop string begins in its middle.
  const auto tokens = TinyTokenizer().Encode("a the end").value();
  OutputPipeline pipeline(&TinyTokenizer(), {"he"});
  const Sent sent = Drain(pipeline, tokens);
  EXPECT_EQ(sent.raw, "a t");
  EXPECT_EQ(sent.tokens, std::vector<int32_t>(tokens.begin(), tokens.begin() + 2));
  EXPECT_EQ(pipeline.kept_tokens(), 2);
  EXPECT_EQ(pipeline.matched_string(), "he");
}

TEST(OutputPipelineTest, TokensWhollyInsideAStopStringAreNot) {
  OutputPipeline pipeline(&TinyTokenizer(), {"bcd"});
  const Sent sent = Drain(pipeline, ByteTokens("abcdz"));
  EXPECT_EQ(sent.tokens, ByteTokens("a"));
  EXPECT_EQ(pipeline.kept_tokens(), 1);
  OutputPipeline at_start(&TinyTokenizer(), {"ab"});
  EXPECT_TRUE(Drain(at_start, ByteTokens("ab")).tokens.empty());
  EXPECT_EQ(at_start.kept_tokens(), 0);
}

TEST(OutputPipelineTest, AStopStringInsideACodePoint) {
  // The stop string is the second half of a code point: what is left is no UTF-8.
  OutputPipeline pipeline(&TinyTokenizer(), {"\x98\x80"});
  const Sent sent = Drain(pipeline, ByteTokens("x\xF0\x9F\x98\x80"));
  EXPECT_EQ(sent.raw, "x\xF0\x9F");
  EXPECT_EQ(sent.text, "x\xEF\xBF\xBD");
}

TEST(OutputPipelineTest, LogprobsGoWithTheirTokens) {
  OutputPipeline pipeline(&TinyTokenizer(), {"zz"});
  TokenLogprob logprob;
  for (const int32_t token : ByteTokens("az")) {
    logprob.token_id = token;
    pipeline.Push(token, logprob);
  }
  const auto ready = pipeline.TakeReady();
  ASSERT_TRUE(ready.has_value());
  ASSERT_EQ(ready->logprobs.size(), 1u);
  EXPECT_EQ(ready->logprobs[0].token_id, ByteTokens("a")[0]);
  const auto rest = pipeline.TakeRest();
  ASSERT_TRUE(rest.has_value());
  ASSERT_EQ(rest->logprobs.size(), 1u);
  EXPECT_EQ(rest->logprobs[0].token_id, ByteTokens("z")[0]);
}

// However the text is cut into tokens and pieces: nothing of a stop string is
// sent, nothing before it is lost, and kept tokens are those with a byte before.
TEST(OutputPipelineTest, RandomTextsAndStopStrings) {
  std::mt19937_64 rng(1);
  const std::vector<std::string> parts = {"the",      " the",         "in",   "er", "a",
                                          "\xC3\xA9", "\xE2\x82\xAC", "\xFF", " ",  "h"};
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    while (text.size() < 1 + rng() % 30) text += parts[rng() % parts.size()];
    std::vector<std::string> stops;
    for (uint64_t i = rng() % 3; i > 0; --i) {
      std::string stop;
      while (stop.size() < 1 + rng() % 5) stop += parts[rng() % parts.size()];
      stops.push_back(stop);
    }
    const auto tokens = rng() % 2 == 0 ? TinyTokenizer().Encode(text).value() : ByteTokens(text);
    OutputPipeline pipeline(&TinyTokenizer(), stops);
    const Sent sent = Drain(pipeline, tokens);
    size_t end = text.size();
    if (const auto match = sampling::StopMatcher(stops).Feed(text); match.has_value()) {
      end = match->begin;
      ASSERT_TRUE(pipeline.match().has_value());
    }
    ASSERT_EQ(sent.raw, text.substr(0, end));
    ASSERT_EQ(sent.text, tokenizer::ReplaceInvalidUtf8(text.substr(0, end)));
    size_t begin = 0;
    size_t kept = 0;
    while (kept < tokens.size() && begin < end) {
      begin += TinyTokenizer().TokenBytes(tokens[kept++]).size();
    }
    ASSERT_EQ(sent.tokens, std::vector<int32_t>(tokens.begin(), tokens.begin() + kept));
    if (pipeline.match().has_value()) {
      ASSERT_EQ(pipeline.kept_tokens(), static_cast<int>(kept));
    }
  }
}

}  // namespace
}  // namespace tokend::engine
