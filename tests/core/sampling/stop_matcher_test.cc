#include "core/sampling/stop_matcher.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tokend::sampling {
namespace {

struct RefMatch {
  size_t begin;
  size_t end;
};

// The match that ends first, the longest of those.
std::optional<RefMatch> FirstMatchRef(const std::string& text,
                                      const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<RefMatch> best;
    for (const std::string& stop : stops) {
      if (stop.size() > end || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      const size_t begin = end - stop.size();
      if (!best.has_value() || begin < best->begin) best = RefMatch{begin, end};
    }
    if (best.has_value()) return best;
  }
  return std::nullopt;
}

// Length of the longest end of `text` that is a proper start of a stop string.
size_t HeldRef(const std::string& text, const std::vector<std::string>& stops) {
  size_t held = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) held = std::max(held, n);
    }
  }
  return held;
}

TEST(StopMatcherTest, EveryWayToSplitAStopString) {
  const std::string stop = "<end>";
  const std::string text = "so<<e <end>tail";
  const size_t begin = text.find(stop);
  // Each bit says whether a cut comes after that byte.
  for (uint32_t cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    StopMatcher matcher({stop});
    std::optional<StopMatcher::Match> match;
    size_t released = 0;
    for (size_t i = 0, from = 0; i < text.size() && !match.has_value(); ++i) {
      if (i + 1 < text.size() && (cuts >> i & 1) == 0) continue;
      match = matcher.Feed(absl::string_view(text).substr(from, i + 1 - from));
      from = i + 1;
      if (!match.has_value()) released = matcher.fed() - matcher.held();
      ASSERT_LE(released, begin) << cuts;
    }
    ASSERT_TRUE(match.has_value()) << cuts;
    EXPECT_EQ(match->begin, begin);
    EXPECT_EQ(match->string, 0u);
  }
}

TEST(StopMatcherTest, AgreesWithTheReferenceByteByByte) {
  std::mt19937_64 rng(1);
  for (int round = 0; round < 5000; ++round) {
    const auto random_string = [&](size_t least, size_t most) {
      std::string s(least + rng() % (most - least + 1), 'a');
      for (char& c : s) c = static_cast<char>('a' + rng() % 2);
      return s;
    };
    std::vector<std::string> stops(1 + rng() % 4);
    for (std::string& stop : stops) stop = random_string(1, 7);
    const std::string text = random_string(0, 40);
    const auto want = FirstMatchRef(text, stops);
    StopMatcher matcher(stops);
    std::optional<StopMatcher::Match> got;
    for (size_t i = 0; i < text.size() && !got.has_value(); ++i) {
      got = matcher.Feed(absl::string_view(text).substr(i, 1));
      if (!got.has_value()) {
        ASSERT_EQ(matcher.fed(), i + 1);
        ASSERT_EQ(matcher.held(), HeldRef(text.substr(0, i + 1), stops)) << text;
      }
    }
    ASSERT_EQ(got.has_value(), want.has_value()) << text;
    if (!got.has_value()) continue;
    EXPECT_EQ(got->begin, want->begin);
    EXPECT_EQ(matcher.string(got->string).size(), want->end - want->begin);
    EXPECT_EQ(text.compare(want->begin, want->end - want->begin, matcher.string(got->string)), 0);
    // In one piece too.
    const auto whole = StopMatcher(stops).Feed(text);
    ASSERT_TRUE(whole.has_value());
    EXPECT_EQ(whole->begin, want->begin);
  }
}

TEST(StopMatcherTest, TheEarlierEndWinsAndThenTheLonger) {
  const auto match = [](std::vector<std::string> stops, const std::string& text) {
    return StopMatcher(std::move(stops)).Feed(text);
  };
  EXPECT_EQ(match({"abcd", "bc"}, "abcd")->begin, 1u);
  EXPECT_EQ(match({"bc", "abc"}, "xabc")->begin, 1u);
  EXPECT_EQ(match({"bc", "abc"}, "xabc")->string, 1u);
}

TEST(StopMatcherTest, HoldsNothingWithoutStopStrings) {
  StopMatcher matcher({});
  EXPECT_FALSE(matcher.Feed("anything").has_value());
  EXPECT_EQ(matcher.held(), 0u);
  StopMatcher empty({""});
  EXPECT_FALSE(empty.Feed("anything").has_value());
  EXPECT_EQ(empty.held(), 0u);
}

TEST(StopMatcherTest, AnyBytes) {
  const std::string stop("\0\xff\x80", 3);
  StopMatcher matcher({stop});
  EXPECT_FALSE(matcher.Feed(absl::string_view("\xff\0", 2)).has_value());
  EXPECT_EQ(matcher.held(), 1u);
  EXPECT_FALSE(matcher.Feed("\xff").has_value());
  EXPECT_EQ(matcher.held(), 2u);
  EXPECT_EQ(matcher.Feed("\x80")->begin, 1u);
}

TEST(StopMatcherTest, LongRepetitiveStringsTakeLinearTime) {
  // 16 strings of 255 'a' and a 'b' over 200,000 'a': quadratic work would hang.
  std::vector<std::string> stops(16, std::string(255, 'a') + "b");
  StopMatcher matcher(stops);
  EXPECT_FALSE(matcher.Feed(std::string(200000, 'a')).has_value());
  EXPECT_EQ(matcher.held(), 255u);
  EXPECT_EQ(matcher.Feed("b")->begin, 200000u - 255u);
}

}  // namespace
}  // namespace tokend::sampling
