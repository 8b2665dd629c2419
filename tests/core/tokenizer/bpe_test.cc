// The priority-queue merger against the definition, written plainly.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/tokenizer/bpe_encoder.h"
#include "tests/core/tokenizer/test_vocabularies.h"

namespace tokend::tokenizer {
namespace {

// A random vocabulary over a few letters, each merge joining two tokens that are there already.
struct RandomVocabulary {
  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;

  RandomVocabulary(std::mt19937_64& rng, size_t merge_count) : tokens({"a", "b", "c", "d"}) {
    while (merges.size() < merge_count) {
      const std::string left = tokens[rng() % tokens.size()];
      const std::string right = tokens[rng() % tokens.size()];
      const bool known = std::find(tokens.begin(), tokens.end(), left + right) != tokens.end();
      const std::pair<std::string, std::string> pair(left, right);
      if (left.size() + right.size() > 8 ||
          std::find(merges.begin(), merges.end(), pair) != merges.end()) {
        continue;
      }
      merges.push_back(pair);
      if (!known) tokens.push_back(left + right);
    }
  }

  std::unique_ptr<Tokenizer> Load() const {
    std::vector<std::string> lines;
    for (const auto& [left, right] : merges) lines.push_back(left + " " + right);
    testing::GgufWriter writer;
    writer.String("tokenizer.ggml.model", "gpt2").String("tokenizer.ggml.pre", "gpt-2");
    writer.Strings("tokenizer.ggml.tokens", tokens).Strings("tokenizer.ggml.merges", lines);
    auto tokenizer = FromBytes(writer.Build());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return *std::move(tokenizer);
  }

  // Merge after merge: the lowest rank there is, at its leftmost place.
  std::vector<std::string> Encode(const std::string& text) const {
    std::vector<std::string> symbols;
    for (char c : text) symbols.emplace_back(1, c);
    while (true) {
      size_t best_rank = merges.size();
      size_t best_at = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto pair = std::make_pair(symbols[i], symbols[i + 1]);
        const auto rank =
            static_cast<size_t>(std::find(merges.begin(), merges.end(), pair) - merges.begin());
        if (rank < best_rank) {
          best_rank = rank;
          best_at = i;
        }
      }
      if (best_rank == merges.size()) return symbols;
      symbols[best_at] += symbols[best_at + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
    }
  }
};

TEST(BpeTest, MatchesTheDefinition) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 60; ++round) {
    const RandomVocabulary vocabulary(rng, rng() % 20 + 1);
    const auto tokenizer = vocabulary.Load();
    for (int text_round = 0; text_round < 40; ++text_round) {
      std::string text;
      for (uint64_t size = rng() % 40; size > 0; --size) text.push_back("abcd"[rng() % 4]);
      const auto ids = tokenizer->Encode(text);
      ASSERT_TRUE(ids.ok());
      std::vector<std::string> symbols;
      for (int32_t id : *ids) symbols.emplace_back(tokenizer->TokenBytes(id));
      EXPECT_EQ(symbols, vocabulary.Encode(text)) << text;
    }
  }
}

}  // namespace
}  // namespace tokend::tokenizer
