// The CPU backend against itself, however a sequence is cut, placed and accompanied.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "gtest/gtest.h"
#include "tests/core/cpu/backend_rig.h"

namespace tokend::cpu {
namespace {

using base::Activations;
using base::KvDtype;
using testing::PagedRunner;
using testing::RandomModel;
using testing::SameBits;

struct Matrix {
  Activations activations;
  KvDtype kv_dtype;
  int page_tokens;
};

class DeterminismTest : public ::testing::TestWithParam<Matrix> {
 protected:
  CpuBackendOptions Options() const {
    CpuBackendOptions options;
    options.threads = 2;
    options.activations = GetParam().activations;
    options.kv_dtype = GetParam().kv_dtype;
    options.page_tokens = GetParam().page_tokens;
    return options;
  }
  const RandomModel model_{Quantised()};
};

TEST_P(DeterminismTest, ChunksDoNotChangeABit) {
  const std::vector<int32_t> tokens = model_.Tokens(530, 10);
  for (const ops::AttentionMask mask :
       {ops::AttentionMask{}, ops::AttentionMask{4, 100}, ops::AttentionMask{20, 100, 290}}) {
    Rig rig(model_, Options());
    const std::vector<float> whole = rig.Run(tokens, 512, mask);
    for (const int64_t chunk : {1, 7, 64}) {
      EXPECT_TRUE(SameBits(rig.Run(tokens, chunk, mask), whole)) << "chunk " << chunk;
    }
  }
}

TEST_P(DeterminismTest, NeighboursDoNotChangeABit) {
  const std::vector<int32_t> tokens = model_.Tokens(290, 11);
  Rig rig(model_, Options(), 3000);
  const std::vector<float> alone = rig.Run(tokens, 1);
  for (const int others : {1, 3, 31}) {
    std::vector<PagedRunner::Sequence> sequences;
    std::vector<std::vector<int32_t>> texts;
    for (int i = 0; i <= others; ++i) {
      const ops::AttentionMask mask = i % 3 == 1 ? ops::AttentionMask{4, 33} : ops::AttentionMask{};
      sequences.push_back(rig.runner->NewSequence(i == 0 ? ops::AttentionMask{} : mask));
      texts.push_back(i == 0 ? tokens : model_.Tokens(400, 100 + static_cast<uint64_t>(i)));
    }
    std::vector<float> got;
    std::vector<size_t> at(sequences.size(), 0);
    for (int step = 0; at[0] < tokens.size(); ++step) {
      std::vector<PagedRunner::Feed> feeds;
      // The one watched is neither always first nor always fed alike.
      const size_t start = static_cast<size_t>(step) % sequences.size();
      for (size_t k = 0; k < sequences.size(); ++k) {
        const size_t i = (start + k) % sequences.size();
        const size_t want = 1 + static_cast<size_t>(step * 7 + static_cast<int>(i) * 5) % 12;
        const size_t count = std::min(want, texts[i].size() - at[i]);
        if (count == 0) continue;
        feeds.push_back({&sequences[i], absl::MakeConstSpan(texts[i]).subspan(at[i], count),
                         i == 0 || k % 2 == 0});
        at[i] += count;
      }
      const auto logits = rig.runner->Step(feeds);
      ASSERT_TRUE(logits.ok()) << logits.status().ToString();
      for (size_t k = 0; k < feeds.size(); ++k) {
        if (feeds[k].sequence != &sequences[0]) continue;
        got.insert(got.end(), (*logits)[k].begin(), (*logits)[k].end());
      }
    }
    EXPECT_TRUE(SameBits(got, alone)) << others << " others";
    for (PagedRunner::Sequence& sequence : sequences) rig.runner->Release(&sequence);
  }
}

TEST_P(DeterminismTest, ThreadsAndInstructionSetsDoNotChangeABit) {
  const std::vector<int32_t> tokens = model_.Tokens(300, 12);
  CpuBackendOptions options = Options();
  options.threads = 1;
  const std::vector<float> one = Rig(model_, options).Run(tokens, 50);
  options.threads = 3;
  EXPECT_TRUE(SameBits(Rig(model_, options).Run(tokens, 50), one));
  for (const Isa isa : SupportedIsas()) {
    options.isa = std::string(IsaName(isa));
    EXPECT_TRUE(SameBits(Rig(model_, options).Run(tokens, 100), one)) << options.isa;
  }
}

// A fork: the partial last page is copied, full pages are shared.
TEST_P(DeterminismTest, CopiedPagesDoNotChangeABit) {
  const std::vector<int32_t> tokens = model_.Tokens(120, 13);
  Rig rig(model_, Options());
  const std::vector<float> whole = rig.Run(tokens, 1);
  const auto vocabulary = static_cast<size_t>(model_.plan().vocabulary_size);
  const size_t head = 75;
  const auto all = absl::MakeConstSpan(tokens);

  PagedRunner::Sequence parent = rig.runner->NewSequence();
  ASSERT_TRUE(rig.runner->Run(&parent, all.subspan(0, head), 30).ok());
  PagedRunner::Sequence fork = parent;
  std::vector<ops::PageCopy> copies;
  for (auto& pages : fork.pages) {
    const base::PageId copy = rig.runner->Take();
    copies.push_back({pages.back(), copy, static_cast<int32_t>(head) % GetParam().page_tokens});
    pages.back() = copy;
  }
  ASSERT_TRUE(rig.backend->CopyPages(copies).ok());
  // The parent goes elsewhere and must not disturb the fork.
  ASSERT_TRUE(rig.runner->Run(&parent, model_.Tokens(40, 14), 9).ok());
  const auto got = rig.runner->Run(&fork, all.subspan(head), 7);
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(SameBits(*got, absl::MakeConstSpan(whole).subspan(head * vocabulary)));
}

INSTANTIATE_TEST_SUITE_P(Matrix, DeterminismTest,
                         ::testing::Values(Matrix{Activations::kInt16, KvDtype::kF16, 16},
                                           Matrix{Activations::kInt16, KvDtype::kF16, 32},
                                           Matrix{Activations::kInt8, KvDtype::kInt8, 16},
                                           Matrix{Activations::kInt16, KvDtype::kInt8, 32},
                                           Matrix{Activations::kF32, KvDtype::kF32, 16},
                                           Matrix{Activations::kF32, KvDtype::kF16, 32}),
                         [](const auto& matrix) {
                           return absl::StrCat(base::ActivationsName(matrix.param.activations),
                                               "_kv_", base::KvDtypeName(matrix.param.kv_dtype),
                                               "_pages_of_", matrix.param.page_tokens);
                         });

}  // namespace
}  // namespace tokend::cpu
