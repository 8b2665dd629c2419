#include "tests/support/backend_checks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_join.h"
#include "core/ops/reference_model.h"
#include "gtest/gtest.h"
#include "tests/support/compare.h"

namespace tokend::testing {

std::vector<float> BackendRig::Run(absl::Span<const int32_t> tokens, int64_t chunk,
                                   const ops::AttentionMask& mask) {
  return RunCut(tokens, {&chunk, 1}, mask);
}

std::vector<float> BackendRig::RunCut(absl::Span<const int32_t> tokens,
                                      absl::Span<const int64_t> steps,
                                      const ops::AttentionMask& mask) {
  PagedRunner::Sequence sequence = runner->NewSequence(mask);
  std::vector<float> all;
  for (size_t i = 0; !tokens.empty(); ++i) {
    // The last size is for all that is left.
    const bool last = i + 1 >= steps.size();
    const auto count =
        last ? tokens.size() : std::min(tokens.size(), static_cast<size_t>(steps[i]));
    const auto logits = runner->Run(&sequence, tokens.first(count), steps[i]);
    EXPECT_TRUE(logits.ok()) << logits.status().ToString();
    if (!logits.ok()) break;
    all.insert(all.end(), logits->begin(), logits->end());
    tokens.remove_prefix(count);
  }
  runner->Release(&sequence);
  return all;
}

void CheckChunks(BackendRig* rig, const RandomModel& model, int64_t tokens,
                 absl::Span<const std::vector<int64_t>> cuts) {
  const std::vector<int32_t> text = model.Tokens(tokens, 10);
  for (const ops::AttentionMask mask :
       {ops::AttentionMask{}, ops::AttentionMask{4, 100}, ops::AttentionMask{20, 100, 290}}) {
    const std::vector<float> whole = rig->Run(text, 512, mask);
    for (const std::vector<int64_t>& steps : cuts) {
      EXPECT_TRUE(SameBits(rig->RunCut(text, steps, mask), whole))
          << "steps of " << absl::StrJoin(steps, ", ");
    }
  }
}

void CheckNeighbours(BackendRig* rig, const RandomModel& model, int64_t count, int others) {
  const std::vector<int32_t> tokens = model.Tokens(count, 11);
  const std::vector<float> alone = rig->Run(tokens, 1);
  std::vector<PagedRunner::Sequence> sequences;
  std::vector<std::vector<int32_t>> texts;
  for (int i = 0; i <= others; ++i) {
    const ops::AttentionMask mask = i % 3 == 1 ? ops::AttentionMask{4, 33} : ops::AttentionMask{};
    sequences.push_back(rig->runner->NewSequence(i == 0 ? ops::AttentionMask{} : mask));
    texts.push_back(i == 0 ? tokens : model.Tokens(400, 100 + static_cast<uint64_t>(i)));
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
      const size_t rows = std::min(want, texts[i].size() - at[i]);
      if (rows == 0) continue;
      feeds.push_back({&sequences[i], absl::MakeConstSpan(texts[i]).subspan(at[i], rows),
                       i == 0 || k % 2 == 0});
      at[i] += rows;
    }
    const auto logits = rig->runner->Step(feeds);
    ASSERT_TRUE(logits.ok()) << logits.status().ToString();
    for (size_t k = 0; k < feeds.size(); ++k) {
      if (feeds[k].sequence != &sequences[0]) continue;
      got.insert(got.end(), (*logits)[k].begin(), (*logits)[k].end());
    }
  }
  EXPECT_TRUE(SameBits(got, alone)) << others << " others";
  for (PagedRunner::Sequence& sequence : sequences) rig->runner->Release(&sequence);
}

void CheckCopiedPages(BackendRig* rig, const RandomModel& model) {
  const std::vector<int32_t> tokens = model.Tokens(120, 13);
  const std::vector<float> whole = rig->Run(tokens, 1);
  const auto vocabulary = static_cast<size_t>(model.plan().vocabulary_size);
  const size_t head = 75;
  const auto all = absl::MakeConstSpan(tokens);

  PagedRunner::Sequence parent = rig->runner->NewSequence();
  ASSERT_TRUE(rig->runner->Run(&parent, all.subspan(0, head), 30).ok());
  PagedRunner::Sequence fork = parent;
  std::vector<ops::PageCopy> copies;
  for (auto& pages : fork.pages) {
    const base::PageId copy = rig->runner->Take();
    copies.push_back({pages.back(), copy, static_cast<int32_t>(head) % rig->page_tokens});
    pages.back() = copy;
  }
  ASSERT_TRUE(rig->backend->CopyPages(copies).ok());
  // The parent goes elsewhere and must not disturb the fork.
  ASSERT_TRUE(rig->runner->Run(&parent, model.Tokens(40, 14), 9).ok());
  const auto got = rig->runner->Run(&fork, all.subspan(head), 7);
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(SameBits(*got, absl::MakeConstSpan(whole).subspan(head * vocabulary)));
}

std::vector<double> ReferenceLogits(const RandomModel& model, absl::Span<const int32_t> tokens,
                                    const ops::AttentionMask& mask) {
  std::vector<int64_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  return ops::ReferenceModel(model.plan()).Logits(tokens, mask, positions);
}

double LargestError(absl::Span<const float> got, absl::Span<const double> want) {
  if (got.size() != want.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    largest = std::max(largest, std::abs(got[i] - want[i]));
  }
  return largest / StandardDeviation(want);
}

}  // namespace tokend::testing
