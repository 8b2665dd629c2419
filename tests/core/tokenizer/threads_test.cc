#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/tokenizer/tokenizer.h"
#include "tests/core/tokenizer/test_vocabularies.h"

namespace tokend::tokenizer {
namespace {

TEST(TokenizerTest, ManyThreadsGetTheSame) {
  const auto tokenizer = TinyTokenizer("smollm");
  std::mt19937_64 rng(1);
  const std::string text = RandomText(rng, 2000);
  const std::vector<int32_t> expected = tokenizer->Encode(text, {}).value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        EXPECT_EQ(tokenizer->Encode(text, {}).value(), expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tokend::tokenizer
