#ifndef TOKEND_TESTS_SUPPORT_PAGED_RUNNER_H_
#define TOKEND_TESTS_SUPPORT_PAGED_RUNNER_H_

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/page_id.h"
#include "core/ops/backend.h"
#include "core/ops/step.h"

namespace tokend::testing {

// Sequences on one backend, as a session store would run them: pages in random
// places, given back as soon as every mask has left them, steps of several
// sequences at once.
class PagedRunner {
 public:
  struct Sequence {
    std::vector<ops::AttentionMask> masks;         // [layer]
    std::vector<std::vector<base::PageId>> pages;  // [layer][logical page]; kNone: not there
    int64_t position = 0;                          // of the next token
  };
  struct Feed {
    Sequence* sequence;
    absl::Span<const int32_t> tokens;
    bool all_logits = false;  // of every token; else of the last
  };

  // `poison` is told of each page that becomes free. `backend` outlives it and
  // has an arena of `pages`.
  PagedRunner(ops::Backend* backend, int layers, int page_tokens, int64_t pages, uint64_t seed,
              std::function<void(base::PageId)> poison = nullptr);

  Sequence NewSequence(const ops::AttentionMask& mask = {}) const;
  void Release(Sequence* sequence);

  // One step. Logits of each feed: [wanted rows * vocabulary_size].
  absl::StatusOr<std::vector<std::vector<float>>> Step(absl::Span<const Feed> feeds);

  // All of `tokens`, `chunk` a step; logits of all of them.
  absl::StatusOr<std::vector<float>> Run(Sequence* sequence, absl::Span<const int32_t> tokens,
                                         int64_t chunk);

  // A page outside of any sequence.
  base::PageId Take();
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

 private:
  void Reserve(Sequence* sequence, int64_t tokens);
  void ReleaseHidden(Sequence* sequence);
  void Free(base::PageId* page);
  // The table as step.h wants it; `storage` keeps its entries.
  ops::LayerKv Table(const Sequence& sequence, size_t layer,
                     std::vector<base::PageId>* storage) const;

  ops::Backend* const backend_;
  const int layers_;
  const int page_tokens_;
  const std::function<void(base::PageId)> poison_;
  std::mt19937_64 random_;
  std::vector<base::PageId> free_;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_PAGED_RUNNER_H_
