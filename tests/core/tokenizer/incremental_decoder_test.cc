#include "core/tokenizer/incremental_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "core/tokenizer/utf8.h"
#include "tests/core/tokenizer/test_vocabularies.h"

namespace tokend::tokenizer {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

TEST(IncrementalDecoderTest, HoldsBackAnUnfinishedCodePoint) {
  const auto tokenizer = TinyTokenizer();
  IncrementalDecoder decoder(tokenizer.get());
  const std::string face = "\xF0\x9F\x98\x81";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(decoder.FeedBytes(face.substr(i, 1)).text, "");
    EXPECT_EQ(decoder.pending_bytes(), i + 1);
  }
  const DecodedText whole = decoder.FeedBytes(face.substr(3) + "a\xC3");
  EXPECT_EQ(whole.text, face + "a");
  EXPECT_EQ(whole.raw, face + "a");
  EXPECT_FALSE(whole.replaced);
  EXPECT_EQ(decoder.pending_bytes(), 1u);
}

TEST(IncrementalDecoderTest, InvalidBytesAreReplacedAndReported) {
  const auto tokenizer = TinyTokenizer();
  IncrementalDecoder decoder(tokenizer.get());
  EXPECT_EQ(decoder.FeedBytes("a\xE4\xBD").text, "a");
  const DecodedText broken = decoder.FeedBytes("b");  // the code point never came
  EXPECT_EQ(broken.text, std::string(kReplacement) + "b");
  EXPECT_EQ(broken.raw,
            "\xE4\xBD"
            "b");
  EXPECT_TRUE(broken.replaced);
  EXPECT_EQ(decoder.FeedBytes("\xFF").text, kReplacement);
}

TEST(IncrementalDecoderTest, FlushGivesUpWhatStillWaits) {
  const auto tokenizer = TinyTokenizer();
  IncrementalDecoder decoder(tokenizer.get());
  decoder.FeedBytes("\xE4\xBD");
  const DecodedText rest = decoder.Flush();
  EXPECT_EQ(rest.text, kReplacement);
  EXPECT_EQ(rest.raw, "\xE4\xBD");
  EXPECT_TRUE(rest.replaced);
  EXPECT_EQ(decoder.pending_bytes(), 0u);
  const DecodedText nothing = decoder.Flush();
  EXPECT_EQ(nothing.text, "");
  EXPECT_FALSE(nothing.replaced);
}

TEST(IncrementalDecoderTest, SpecialTokensShowAsTheirNames) {
  const auto tokenizer = TinyTokenizer();
  IncrementalDecoder decoder(tokenizer.get());
  EXPECT_EQ(decoder.Feed(*tokenizer->FindSpecial("<|im_end|>")).text, "<|im_end|>");
}

// However bytes are cut, the pieces are UTF-8 and add up to what decoding all at once gives.
void ExpectSameHoweverCut(const std::string& bytes, std::mt19937_64& rng) {
  IncrementalDecoder decoder(nullptr);
  std::string text;
  std::string raw;
  const auto take = [&](const DecodedText& piece) {
    EXPECT_TRUE(IsUtf8(piece.text));
    EXPECT_EQ(piece.replaced, piece.text != piece.raw);
    text += piece.text;
    raw += piece.raw;
  };
  for (size_t i = 0; i < bytes.size();) {
    const size_t size = std::min<size_t>(rng() % 5, bytes.size() - i);
    take(decoder.FeedBytes(absl::string_view(bytes).substr(i, size)));
    EXPECT_LE(decoder.pending_bytes(), 3u);
    i += size;
  }
  take(decoder.Flush());
  EXPECT_EQ(raw, bytes);
  EXPECT_EQ(text, ReplaceInvalidUtf8(bytes));
}

TEST(IncrementalDecoderTest, AnyBytesInAnyPieces) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 3000; ++round) {
    ExpectSameHoweverCut(RandomText(rng, rng() % 20), rng);
    ExpectSameHoweverCut(RandomBytes(rng, rng() % 20), rng);
    std::string mixed = RandomText(rng, 10);  // lead bytes without their rest
    mixed.erase(rng() % mixed.size(), rng() % 3);
    ExpectSameHoweverCut(mixed, rng);
  }
}

}  // namespace
}  // namespace tokend::tokenizer
