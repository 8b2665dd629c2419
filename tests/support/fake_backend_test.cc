#include "tests/support/fake_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tokend::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kLayers = 2;
constexpr int kPageTokens = 4;
constexpr int kVocabulary = 16;

// A sequence with its own pages, handed out from `next_page` on.
class FakeBackendTest : public ::testing::Test {
 protected:
  FakeBackendTest()
      : backend_({.layers = kLayers, .page_tokens = kPageTokens, .vocabulary_size = kVocabulary}) {
    EXPECT_TRUE(backend_.AllocateArena(64).ok());
    for (int i = 0; i < 64; ++i) pages_.push_back(base::PageId{i});
  }

  // Layer l of a sequence of up to 16 pages.
  ops::LayerKv Layer(int first_page) const {
    return {.pages = &pages_[first_page], .page_count = 16, .mask = mask_};
  }

  absl::StatusOr<std::vector<float>> Step(absl::Span<const int32_t> tokens, int64_t position) {
    const std::vector<ops::LayerKv> layers = {Layer(0), Layer(16)};
    const ops::StepSequence sequence = {
        .rows = static_cast<int32_t>(tokens.size()), .position = position, .layers = layers};
    const int32_t last = sequence.rows - 1;
    auto output = backend_.Forward({.tokens = tokens,
                                    .sequences = absl::MakeConstSpan(&sequence, 1),
                                    .logit_rows = absl::MakeConstSpan(&last, 1)});
    if (!output.ok()) return output.status();
    return std::vector<float>(output->logits.begin(), output->logits.end());
  }

  FakeBackend backend_;
  ops::AttentionMask mask_;
  std::vector<base::PageId> pages_;
};

std::vector<int32_t> RandomTokens(int count) {
  std::minstd_rand random(7);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(random() % kVocabulary);
  return tokens;
}

TEST_F(FakeBackendTest, ChunksOfAnySizeEqualTheReference) {
  const std::vector<int32_t> tokens = RandomTokens(40);
  for (const ops::AttentionMask& mask :
       {ops::AttentionMask{}, ops::AttentionMask{.sink_tokens = 3, .window_tokens = 7}}) {
    mask_ = mask;
    FakeReference reference(kVocabulary, {mask, mask});
    reference.Append(tokens);
    for (size_t chunk : {1, 3, 40}) {
      for (size_t at = 0; at < tokens.size(); at += chunk) {
        const size_t rows = std::min(chunk, tokens.size() - at);
        auto logits = Step(absl::MakeConstSpan(tokens).subspan(at, rows), at);
        ASSERT_TRUE(logits.ok()) << logits.status();
        EXPECT_THAT(*logits, ElementsAreArray(reference.Logits(at + rows - 1)));
      }
    }
  }
}

TEST_F(FakeBackendTest, APoisonedRowFailsTheStep) {
  ASSERT_TRUE(Step(RandomTokens(8), 0).ok());
  backend_.Poison(base::PageId{17});
  EXPECT_FALSE(Step({3}, 8).ok());
  EXPECT_THAT(backend_.problems(), Not(IsEmpty()));
}

TEST_F(FakeBackendTest, ARowOfAnotherPlaceFailsTheStep) {
  ASSERT_TRUE(Step(RandomTokens(8), 0).ok());
  std::swap(pages_[0], pages_[1]);
  EXPECT_FALSE(Step({3}, 8).ok());
}

TEST_F(FakeBackendTest, AHiddenRowIsNotRead) {
  mask_ = {.sink_tokens = 0, .window_tokens = 4};
  ASSERT_TRUE(Step(RandomTokens(8), 0).ok());
  backend_.Poison(base::PageId{0});
  EXPECT_TRUE(Step({3}, 8).ok());
}

TEST_F(FakeBackendTest, ACopyCarriesItsRowsAlone) {
  ASSERT_TRUE(Step(RandomTokens(8), 0).ok());
  const std::vector<ops::PageCopy> copies = {{base::PageId{1}, base::PageId{40}, 2},
                                             {base::PageId{17}, base::PageId{41}, 2}};
  ASSERT_TRUE(backend_.CopyPages(copies).ok());
  EXPECT_EQ(backend_.PageChecksum(base::PageId{40}, 2), backend_.PageChecksum(base::PageId{1}, 2));
  EXPECT_NE(backend_.PageChecksum(base::PageId{40}, 3), backend_.PageChecksum(base::PageId{1}, 3));
  pages_[1] = base::PageId{40};
  pages_[17] = base::PageId{41};
  EXPECT_TRUE(Step({5}, 6).ok());
  EXPECT_FALSE(Step({5}, 8).ok());
}

TEST_F(FakeBackendTest, TwoWritersOfAPageFailTheStep) {
  const std::vector<ops::LayerKv> layers = {Layer(0), Layer(16)};
  const std::vector<int32_t> tokens = {1, 2};
  const std::vector<ops::StepSequence> sequences = {{.rows = 1, .layers = layers},
                                                    {.first_row = 1, .rows = 1, .layers = layers}};
  EXPECT_FALSE(backend_.Forward({.tokens = tokens, .sequences = sequences}).ok());
}

// Two steps and a copy between them, which run late and in order.
TEST(FakeBackendInFlightTest, AStepStartsWithWhatTheOneBeforeDraws) {
  FakeBackend backend({.layers = kLayers,
                       .page_tokens = kPageTokens,
                       .vocabulary_size = kVocabulary,
                       .draws_tokens = true,
                       .steps_in_flight = 2});
  ASSERT_TRUE(backend.AllocateArena(8).ok());
  ops::SamplingParams greedy;
  greedy.temperature = 0;
  const auto submit = [&](std::vector<int32_t> tokens, int64_t position) {
    const std::vector<base::PageId> pages = {base::PageId{0}, base::PageId{1}};
    const std::vector<ops::LayerKv> layers = {{.pages = &pages[0], .page_count = 1},
                                              {.pages = &pages[1], .page_count = 1}};
    const ops::StepSequence sequence = {
        .rows = static_cast<int32_t>(tokens.size()), .position = position, .layers = layers};
    const int32_t last = sequence.rows - 1;
    const ops::SamplingParams params = greedy;
    const ops::TokenDraw draw = {&params, position + sequence.rows};
    return backend.Submit({tokens, {&sequence, 1}, {&last, 1}, {&draw, 1}});
  };
  FakeReference reference(kVocabulary, {{}, {}});
  const auto want = [&](std::vector<int32_t> tokens) {
    reference.Append(tokens);
    const std::vector<float> logits = reference.Logits(reference.size() - 1);
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  };
  ASSERT_TRUE(submit({3, 4}, 0).ok());
  const std::vector<ops::PageCopy> copies = {{base::PageId{0}, base::PageId{2}, 2}};
  ASSERT_TRUE(backend.CopyPages(copies).ok());
  ASSERT_TRUE(submit({-1}, 2).ok());
  EXPECT_EQ(backend.steps_ahead(), 1);
  const auto first = backend.Collect();
  ASSERT_TRUE(first.ok());
  const int32_t token = want({3, 4});
  EXPECT_THAT(first->tokens, ElementsAreArray({token}));
  EXPECT_EQ(backend.PageChecksum(base::PageId{2}, 2), backend.PageChecksum(base::PageId{0}, 2));
  const auto second = backend.Collect();
  ASSERT_TRUE(second.ok());
  EXPECT_THAT(second->tokens, ElementsAreArray({want({token})}));
  EXPECT_FALSE(backend.Collect().ok());
  EXPECT_FALSE(submit({-2}, 3).ok()) << "there is no such draw";
}

TEST_F(FakeBackendTest, FailsTheCallThatItIsToldTo) {
  backend_.fail_forward_in = 2;
  EXPECT_TRUE(Step({1}, 0).ok());
  EXPECT_FALSE(Step({1}, 1).ok());
  EXPECT_TRUE(Step({1}, 1).ok());
}

}  // namespace
}  // namespace tokend::testing
