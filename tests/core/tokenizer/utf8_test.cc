#include "core/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/core/tokenizer/test_vocabularies.h"

namespace tokend::tokenizer {
namespace {

TEST(Utf8Test, EveryCodePointIsWholeAndEveryCutOfItIncomplete) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const std::string bytes = CodePointUtf8(c);
    const Utf8Prefix whole = ClassifyUtf8(bytes + "x");
    ASSERT_EQ(whole.kind, Utf8Prefix::kCodePoint) << static_cast<uint32_t>(c);
    ASSERT_EQ(whole.size, bytes.size());
    for (size_t size = 1; size < bytes.size(); ++size) {
      const Utf8Prefix cut = ClassifyUtf8(bytes.substr(0, size));
      ASSERT_EQ(cut.kind, Utf8Prefix::kIncomplete);
      ASSERT_EQ(cut.size, size);
    }
  }
}

// The standard's examples of substitution by maximal subparts (tables 3-8 to 3-11).
TEST(Utf8Test, MaximalSubpartsBecomeOneReplacementEach) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("ok\xF0\x9F\x98"), "ok" + r);
  EXPECT_EQ(ReplaceInvalidUtf8(""), "");
}

TEST(Utf8Test, ReplacingGivesUtf8AndKeepsWhatWas) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = RandomText(rng, rng() % 30);
    EXPECT_TRUE(IsUtf8(text));
    EXPECT_EQ(ReplaceInvalidUtf8(text), text);
    EXPECT_TRUE(IsUtf8(ReplaceInvalidUtf8(RandomBytes(rng, rng() % 30))));
    EXPECT_FALSE(IsUtf8(text + "\xFF" + text));
    EXPECT_EQ(ReplaceInvalidUtf8(text + "\xFF" + text), text + "\xEF\xBF\xBD" + text);
  }
}

}  // namespace
}  // namespace tokend::tokenizer
