#include "tests/support/paged_runner.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace tokend::testing {

PagedRunner::PagedRunner(ops::Backend* backend, int layers, int page_tokens, int64_t pages,
                         uint64_t seed, std::function<void(base::PageId)> poison)
    : backend_(backend),
      layers_(layers),
      page_tokens_(page_tokens),
      poison_(std::move(poison)),
      random_(seed) {
  for (int64_t page = 0; page < pages; ++page) {
    free_.push_back(static_cast<base::PageId>(page));
    if (poison_) poison_(free_.back());
  }
}

PagedRunner::Sequence PagedRunner::NewSequence(const ops::AttentionMask& mask) const {
  Sequence sequence;
  sequence.masks.assign(static_cast<size_t>(layers_), mask);
  sequence.pages.resize(static_cast<size_t>(layers_));
  return sequence;
}

base::PageId PagedRunner::Take() {
  TOKEND_CHECK(!free_.empty());
  const size_t at = random_() % free_.size();
  std::swap(free_[at], free_.back());
  const base::PageId page = free_.back();
  free_.pop_back();
  return page;
}

void PagedRunner::Free(base::PageId* page) {
  if (*page == base::PageId::kNone) return;
  if (poison_) poison_(*page);
  free_.push_back(*page);
  *page = base::PageId::kNone;
}

void PagedRunner::Release(Sequence* sequence) {
  for (auto& pages : sequence->pages) {
    for (base::PageId& page : pages) Free(&page);
  }
}

void PagedRunner::Reserve(Sequence* sequence, int64_t tokens) {
  const int64_t pages = (sequence->position + tokens + page_tokens_ - 1) / page_tokens_;
  for (auto& table : sequence->pages) {
    while (static_cast<int64_t>(table.size()) < pages) table.push_back(Take());
  }
}

void PagedRunner::ReleaseHidden(Sequence* sequence) {
  for (size_t layer = 0; layer < sequence->pages.size(); ++layer) {
    const ops::AttentionMask& mask = sequence->masks[layer];
    const int64_t begin = mask.WindowBegin(sequence->position);
    const bool sinks = mask.SeesSinks(sequence->position);
    const int64_t sink_pages = sinks ? (mask.SinkEnd() + page_tokens_ - 1) / page_tokens_ : 0;
    std::vector<base::PageId>& table = sequence->pages[layer];
    for (int64_t page = sink_pages; page < begin / page_tokens_; ++page) {
      Free(&table[static_cast<size_t>(page)]);
    }
  }
}

ops::LayerKv PagedRunner::Table(const Sequence& sequence, size_t layer,
                                std::vector<base::PageId>* storage) const {
  const std::vector<base::PageId>& pages = sequence.pages[layer];
  ops::LayerKv kv;
  kv.mask = sequence.masks[layer];
  size_t sinks = 0;
  while (sinks < pages.size() && pages[sinks] != base::PageId::kNone) ++sinks;
  size_t first = sinks;
  while (first < pages.size() && pages[first] == base::PageId::kNone) ++first;
  if (sinks < pages.size()) {
    kv.sink_pages = static_cast<int32_t>(sinks);
    kv.first_page = static_cast<int64_t>(first);
  }
  for (const base::PageId page : pages) {
    if (page != base::PageId::kNone) storage->push_back(page);
  }
  kv.pages = storage->data();
  kv.page_count = static_cast<int32_t>(storage->size());
  return kv;
}

absl::StatusOr<std::vector<std::vector<float>>> PagedRunner::Step(absl::Span<const Feed> feeds) {
  std::vector<int32_t> tokens, logit_rows;
  std::vector<std::vector<base::PageId>> storage(feeds.size() * static_cast<size_t>(layers_));
  std::vector<std::vector<ops::LayerKv>> tables(feeds.size());
  std::vector<ops::StepSequence> sequences;
  std::vector<size_t> wanted;
  for (size_t i = 0; i < feeds.size(); ++i) {
    Sequence* sequence = feeds[i].sequence;
    const auto rows = static_cast<int32_t>(feeds[i].tokens.size());
    Reserve(sequence, rows);
    for (size_t layer = 0; layer < static_cast<size_t>(layers_); ++layer) {
      tables[i].push_back(
          Table(*sequence, layer, &storage[i * static_cast<size_t>(layers_) + layer]));
    }
    const auto first = static_cast<int32_t>(tokens.size());
    sequences.push_back({first, rows, sequence->position, tables[i]});
    tokens.insert(tokens.end(), feeds[i].tokens.begin(), feeds[i].tokens.end());
    wanted.push_back(feeds[i].all_logits ? static_cast<size_t>(rows) : 1);
    for (auto row = static_cast<int32_t>(rows - static_cast<int32_t>(wanted.back())); row < rows;
         ++row) {
      logit_rows.push_back(first + row);
    }
  }
  TOKEND_ASSIGN_OR_RETURN(const ops::StepOutput output,
                          backend_->Forward({tokens, sequences, logit_rows}));
  std::vector<std::vector<float>> logits;
  const size_t vocabulary = output.logits.size() / logit_rows.size();
  size_t at = 0;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto part = output.logits.subspan(at, wanted[i] * vocabulary);
    logits.emplace_back(part.begin(), part.end());
    at += part.size();
    feeds[i].sequence->position += static_cast<int64_t>(feeds[i].tokens.size());
    ReleaseHidden(feeds[i].sequence);
  }
  return logits;
}

absl::StatusOr<std::vector<float>> PagedRunner::Run(Sequence* sequence,
                                                    absl::Span<const int32_t> tokens,
                                                    int64_t chunk) {
  std::vector<float> all;
  for (size_t at = 0; at < tokens.size(); at += static_cast<size_t>(chunk)) {
    const Feed feed = {sequence, tokens.subspan(at, static_cast<size_t>(chunk)), true};
    TOKEND_ASSIGN_OR_RETURN(const auto logits, Step({&feed, 1}));
    all.insert(all.end(), logits[0].begin(), logits[0].end());
  }
  return all;
}

}  // namespace tokend::testing
