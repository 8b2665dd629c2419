#include "tests/support/shaped_model.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "core/ops/reference_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tokend::testing {
namespace {

// Bytes of memory that this process takes, a page mapped twice counting once; -1: unknown.
int64_t OwnBytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    int64_t kilobytes = 0;
    if (word == "Pss:" && file >> kilobytes) return kilobytes * 1024;
  }
  return -1;
}

TEST(RepeatedBytesTest, RepeatsTheBlockToTheEnd) {
  std::string block(3 * 65536, '\0');  // pages of up to 64 KB
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>(i * 31 >> 4);
  const auto bytes = RepeatedBytes::Create(block, 1000000);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  for (size_t i = 0; i < 1000000; ++i) {
    ASSERT_EQ(static_cast<char>(bytes->data()[i]), block[i % block.size()]) << i;
  }
}

// Sizes of these models' files, MB, less the embedding where it is only looked up.
TEST(ShapedModelTest, WeighsWhatTheFilesWeigh) {
  const struct {
    const char* shape;
    const char* mix;
    double megabytes;
  } kFiles[] = {
      {"smollm2-135m", "F16", 269},        {"smollm2-135m", "Q8_0", 143},
      {"smollm2-135m", "Q4_0", 90},        {"smollm2-135m", "Q4_K_M", 104},
      {"gpt2-124m", "F16", 247},           {"gpt2-124m", "Q8_0", 131},
      {"llama-3.2-1b", "Q4_0", 763},       {"llama-3.2-1b", "Q4_K_M", 800},
      {"llama-2-7b", "Q4_K_M", 4080 - 74}, {"llama-3-8b", "F16", 16060 - 1051},
      {"phi-3-mini", "Q4_K_M", 2393 - 55},
  };
  for (const auto& file : kFiles) {
    const auto model = ShapedModel::Create(*FindShape(file.shape), *FindWeightMix(file.mix));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_NEAR(static_cast<double>((*model)->read_bytes()) / 1e6, file.megabytes,
                0.01 * file.megabytes)
        << file.shape << " " << file.mix;
  }
}

TEST(ShapedModelTest, TakesTheMemoryOfAFewBlocks) {
  const int64_t before = OwnBytes();
  if (before < 0) GTEST_SKIP() << "no /proc/self/smaps_rollup";
  const auto model = ShapedModel::Create(*FindShape("llama-3-8b"), WeightMix::kF16);
  ASSERT_TRUE(model.ok()) << model.status();
  const ops::Matrix& head = (*model)->plan().output.weight;
  const int64_t bytes = head.rows * head.cols * 2;
  uint64_t sum = 0;
  for (int64_t i = 0; i < bytes; i += 4096) sum += static_cast<uint64_t>(head.data[i]);
  EXPECT_GT(sum, 0u);
  EXPECT_LT(OwnBytes() - before, int64_t{64} << 20);
  EXPECT_NE(std::memcmp(head.data, head.data + head.cols * 2, 4096), 0);
}

class RecipeTest : public ::testing::TestWithParam<Recipe> {};

TEST_P(RecipeTest, LogitsAreFiniteAndSpread) {
  ModelShape shape;
  shape.name = "small";
  shape.recipe = GetParam();
  shape.layers = 3;
  shape.width = 128;
  shape.ffn_width = 256;
  shape.heads = 4;
  shape.kv_heads = shape.recipe == Recipe::kLlama ? 2 : 4;
  shape.head_dim = 32;
  shape.vocabulary_size = 300;
  shape.context_tokens = 64;
  shape.rope_base = 10000;
  shape.tied = shape.recipe != Recipe::kPhi3;
  for (const WeightMix mix : {WeightMix::kF16, WeightMix::kQ4_0, WeightMix::kQ4_K_M}) {
    const auto model = ShapedModel::Create(shape, mix);
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<int32_t> tokens = {1, 50, 299, 7};
    const std::vector<double> logits =
        ops::ReferenceModel((*model)->plan()).Logits(tokens, ops::AttentionMask{}, {3});
    double sum = 0, squares = 0;
    for (const double logit : logits) {
      ASSERT_TRUE(std::isfinite(logit));
      sum += logit;
      squares += logit * logit;
    }
    const double count = static_cast<double>(logits.size());
    const double deviation = std::sqrt(squares / count - sum * sum / count / count);
    EXPECT_GT(deviation, 0.1) << WeightMixName(mix);
    EXPECT_LT(deviation, 30) << WeightMixName(mix);
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, RecipeTest,
                         ::testing::Values(Recipe::kLlama, Recipe::kGpt2, Recipe::kPhi3));

}  // namespace
}  // namespace tokend::testing
