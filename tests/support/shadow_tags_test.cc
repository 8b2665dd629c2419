// Each thing that ShadowTags is to find, done once.
#include "tests/support/shadow_tags.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/kv/node.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tokend::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kLayers = 2;
constexpr int kPageTokens = 4;
constexpr uint64_t kRoot = 7;

// Does what it is told, and sees nothing wrong in it.
class BlindBackend : public ops::Backend {
 public:
  ops::BackendInfo info() const override { return {}; }
  absl::Status AllocateArena(int64_t) override { return absl::OkStatus(); }
  absl::Status Submit(const ops::StepBatch&) override {
    ++calls;
    return absl::OkStatus();
  }
  absl::StatusOr<ops::StepOutput> Collect() override { return collected; }
  absl::Status CopyPages(absl::Span<const ops::PageCopy>) override {
    ++calls;
    return absl::OkStatus();
  }
  int calls = 0;
  absl::StatusOr<ops::StepOutput> collected = ops::StepOutput{};
};

base::PageId Page(int i) { return base::PageId{i}; }

// A sequence of two pages a layer: page 2 i + l is node i's of layer l. Its first
// node is complete and in the tree; a branch has written the row after it.
class ShadowTagsTest : public ::testing::Test {
 protected:
  ShadowTagsTest() {
    EXPECT_TRUE(tags_.AllocateArena(16).ok());
    MakeNode(nullptr, &root_);
    root_.digest = kRoot;
    MakeNode(&root_, &first_);
    for (int i = 0; i < 2; ++i) {
      for (int layer = 0; layer < kLayers; ++layer) Take(2 * i + layer, i, layer);
    }
    EXPECT_TRUE(Step(0, kPageTokens).ok());
    for (int layer = 0; layer < kLayers; ++layer) tags_.OnAttached(Page(layer), first_);
    EXPECT_TRUE(Step(kPageTokens, 1).ok());
    EXPECT_THAT(tags_.problems(), IsEmpty());
    backend_.calls = 0;
  }

  static void MakeNode(kv::Node* parent, kv::Node* node) {
    node->parent = parent;
    node->jump = parent == nullptr ? node : parent;
    node->index = parent == nullptr ? -1 : parent->index + 1;
  }

  void Take(int page, int64_t index, int layer, uint64_t root = kRoot) {
    tags_.OnTaken(Page(page), {.root = root, .index = index, .layer = layer});
  }

  absl::Status Step(int64_t position, int rows) {
    const absl::Status submitted = Submit(position, rows);
    return submitted.ok() ? tags_.Collect().status() : submitted;
  }

  absl::Status Submit(int64_t position, int rows) {
    std::vector<ops::LayerKv> layers(kLayers);
    for (int layer = 0; layer < kLayers; ++layer) {
      layers[layer].pages = tables_[layer].data();
      layers[layer].page_count = static_cast<int32_t>(tables_[layer].size());
    }
    const std::vector<int32_t> tokens(rows);
    const ops::StepSequence sequence = {.rows = rows, .position = position, .layers = layers};
    return tags_.Submit({.tokens = tokens, .sequences = {&sequence, 1}});
  }

  absl::Status Copy(int from, int to, int rows) {
    const ops::PageCopy copy = {.from = Page(from), .to = Page(to), .rows = rows};
    return tags_.CopyPages({&copy, 1});
  }

  // The step or the copy was kept from the backend, and is named.
  void ExpectFound(const absl::Status& status, const std::string& what) {
    EXPECT_FALSE(status.ok());
    ASSERT_FALSE(tags_.problems().empty());
    EXPECT_THAT(tags_.problems().front(), HasSubstr(what));
    EXPECT_EQ(backend_.calls, 0);
  }
  void ExpectOnly(const std::string& what) {
    EXPECT_THAT(tags_.problems(), ElementsAre(HasSubstr(what)));
  }

  BlindBackend backend_;
  std::vector<base::PageId> freed_;
  ShadowTags tags_{&backend_, kPageTokens, [this](base::PageId page) { freed_.push_back(page); }};
  kv::Node root_, first_;
  std::vector<std::vector<base::PageId>> tables_ = {{Page(0), Page(2)}, {Page(1), Page(3)}};
};

TEST_F(ShadowTagsTest, NothingIsFoundWhereNothingIsWrong) {
  EXPECT_TRUE(Step(kPageTokens + 1, 3).ok());
  Take(4, 1, 0);
  EXPECT_TRUE(Copy(2, 4, kPageTokens).ok());
  tables_[0][1] = Page(4);
  EXPECT_TRUE(Step(2 * kPageTokens - 1, 1).ok()) << "a copied row is a written one";
  EXPECT_THAT(tags_.problems(), IsEmpty());
  EXPECT_GT(tags_.checked_pages(), 0);
}

TEST_F(ShadowTagsTest, AFreePageIsRead) {
  tags_.OnFreed(Page(1));
  EXPECT_THAT(freed_, ElementsAre(Page(1)));
  ExpectFound(Step(kPageTokens + 1, 1), "layer 1, page 0 is free");
}

TEST_F(ShadowTagsTest, AnotherPrincipalsPageIsRead) {
  Take(4, 0, 0, kRoot + 1);
  tables_[0][0] = Page(4);
  ExpectFound(Step(kPageTokens + 1, 1), "page 0 is another principal's");
}

TEST_F(ShadowTagsTest, AnotherLayersPageIsRead) {
  tables_[0][0] = Page(1);
  ExpectFound(Step(kPageTokens + 1, 1), "layer 0, page 0 is layer 1, page 0");
}

TEST_F(ShadowTagsTest, AnotherPlacesPageIsRead) {
  tables_[1][0] = Page(3);
  ExpectFound(Step(kPageTokens + 1, 1), "layer 1, page 0 is layer 1, page 1");
}

TEST_F(ShadowTagsTest, AnotherChainsPageIsRead) {
  kv::Node other, second;
  MakeNode(&root_, &other);
  MakeNode(&other, &second);
  EXPECT_TRUE(Step(kPageTokens + 1, 3).ok());
  backend_.calls = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    tags_.OnAttached(Page(2 + layer), second);
    Take(4 + layer, 2, layer);
    tables_[layer].push_back(Page(4 + layer));
  }
  ExpectFound(Step(2 * kPageTokens, 1), "page 1 is of another chain");
}

TEST_F(ShadowTagsTest, ARowIsReadThatNobodyWrote) {
  ExpectFound(Step(kPageTokens + 2, 1), "position 6 reads 5, which was not written");
}

TEST_F(ShadowTagsTest, ARowIsReadFromBeforeThePageWasTakenAgain) {
  tags_.OnFreed(Page(2));
  Take(2, 1, 0);
  EXPECT_EQ(tags_.generation(Page(2)), 2u);
  ExpectFound(Step(kPageTokens + 1, 1), "layer 0, position 5 reads 4, which was not written");
}

TEST_F(ShadowTagsTest, ANodesPageIsWritten) {
  ExpectFound(Step(kPageTokens - 1, 1), "page 0 is written, and is a node's");
}

TEST_F(ShadowTagsTest, APageIsMissing) {
  tables_[1].pop_back();
  ExpectFound(Step(kPageTokens + 1, 1), "layer 1 has no page 1 to write");
}

TEST_F(ShadowTagsTest, AStepHasNoPages) {
  tables_ = {{}, {}};
  ExpectFound(Step(0, 1), "a step without pages");
}

TEST_F(ShadowTagsTest, APageIsCopiedToAnotherPlace) {
  Take(4, 0, 1);
  ExpectFound(Copy(0, 4, 1), "a page is copied to another place");
}

TEST_F(ShadowTagsTest, APageIsCopiedOverANodes) {
  Take(4, 0, 0);
  ExpectFound(Copy(4, 0, 0), "a page is copied to another place");
}

TEST_F(ShadowTagsTest, ARowIsCopiedThatNobodyWrote) {
  Take(4, 1, 0);
  ExpectFound(Copy(2, 4, 2), "a row is copied that is not written");
}

TEST_F(ShadowTagsTest, APageIsFreedUnderAStep) {
  ASSERT_TRUE(Submit(kPageTokens + 1, 1).ok());
  tags_.OnFreed(Page(3));
  EXPECT_FALSE(tags_.Collect().ok());
  ExpectOnly("a page is freed under a step in flight");
}

TEST_F(ShadowTagsTest, APageIsTakenAgainUnderAStep) {
  ASSERT_TRUE(Submit(kPageTokens + 1, 1).ok());
  tags_.OnFreed(Page(3));
  Take(3, 1, 1);
  EXPECT_FALSE(tags_.Collect().ok());
}

TEST_F(ShadowTagsTest, AStepThatFailedLeftNoRow) {
  ASSERT_TRUE(Submit(kPageTokens + 1, 1).ok());
  backend_.collected = absl::InternalError("lost");
  EXPECT_FALSE(tags_.Collect().ok());
  backend_.calls = 0;
  ExpectFound(Step(kPageTokens + 2, 1), "position 6 reads 5, which was not written");
}

TEST_F(ShadowTagsTest, APageIsTakenTwice) {
  Take(2, 1, 0);
  ExpectOnly("taken that is not free");
}

TEST_F(ShadowTagsTest, APageIsFreedTwice) {
  tags_.OnFreed(Page(2));
  tags_.OnFreed(Page(2));
  ExpectOnly("freed twice");
}

TEST_F(ShadowTagsTest, ANodeGetsAPageOfAnotherPlace) {
  tags_.OnAttached(Page(2), first_);
  ExpectOnly("node 0 gets a page that was taken for node 1");
}

TEST_F(ShadowTagsTest, ANodeGetsAPageOfAnotherRoot) {
  Take(4, 0, 0, kRoot + 1);
  tags_.OnAttached(Page(4), first_);
  ExpectOnly("node 0 gets a page");
}

TEST_F(ShadowTagsTest, ANodeGetsAFreePage) {
  tags_.OnFreed(Page(0));
  tags_.OnAttached(Page(0), first_);
  ExpectOnly("which is free");
}

}  // namespace
}  // namespace tokend::testing
