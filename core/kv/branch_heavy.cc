// BranchState: HEAVY_HITTERS.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/kv/branch_state.h"

namespace tokend::kv {
namespace {

// HeavySet::hidden at the start of an epoch.
int64_t CountHidden(const HeavyHitters& rule, const HeavySet& heavy, int page_tokens,
                    std::vector<int64_t>* scratch) {
  const int64_t begin = rule.WindowBegin(heavy.tokens);
  std::vector<int64_t>& kept = *scratch;
  kept.clear();
  for (const HeavySet::Layer& layer : heavy.layers) {
    for (const ScoredPage& page : layer.pages) {
      if (page.index >= rule.SinkPages(page_tokens) && page.index < begin / page_tokens) {
        kept.push_back(page.index);
      }
    }
  }
  std::sort(kept.begin(), kept.end());
  const auto pages = std::unique(kept.begin(), kept.end()) - kept.begin();
  return begin - std::min(rule.sink_tokens, begin) - pages * page_tokens;
}

}  // namespace

void BranchState::MatchHeavy() {
  NodeTree& tree = store_->tree;
  const int64_t limit = std::max<int64_t>(0, tokens() - 1);
  const HeavySet* from = base_.claim.heavy();
  if (from != nullptr && from->tokens > limit) from = from->epoch.get();
  heavy_ = NewHeavySet();
  if (from != nullptr && from->tokens <= limit) heavy_->Assign(*from);
  const bool at_start = heavy_->tokens > 0 && heavy_->tokens % layout_->policy.epoch_tokens == 0;
  if (heavy_->epoch == nullptr && at_start) KeepEpoch();
  computed_ = heavy_->tokens;
  if (!ran_) cached_tokens_ = computed_ - heavy_->hidden;
  current_ = tree.Take(tree.Ancestor(base_.claim.node(), -1), 0, Claim::Kind::kStrong);
  tree.Hang(&current_, heavy_);
  tree.Change(&base_.claim, Claim::Kind::kTokens);
  tree.Drain(0);
}

absl::Status BranchState::PrepareHeavy(int64_t count) {
  std::vector<PageRef> old;
  {
    base::MutexLock lock(&store_->mu);
    if (!matched_) MatchLocked();
    count = std::min(count, step_rows());
    TOKEND_RETURN_IF_ERROR(TakeHeavyPages((computed_ + count - 1) / page_tokens_, &old));
  }
  if (!old.empty()) {
    const size_t tail = heavy_->layers[0].refs.size() - 1 -
                        static_cast<size_t>(heavy_->next_page() - 1 - computed_ / page_tokens_);
    std::vector<ops::PageCopy> copies;
    for (size_t layer = 0; layer < old.size(); ++layer) {
      copies.push_back({.from = old[layer].id(),
                        .to = heavy_->layers[layer].refs[tail].id(),
                        .rows = static_cast<int32_t>(computed_ % page_tokens_)});
    }
    absl::Status status = store_->backend->CopyPages(copies);
    base::MutexLock lock(&store_->mu);
    for (size_t layer = 0; !status.ok() && layer < old.size(); ++layer) {
      HeavySet::Layer& pages = heavy_->layers[layer];
      std::swap(pages.refs[tail], old[layer]);
      pages.refs.resize(tail + 1);
      pages.pages.resize(tail + 1);
    }
    old.clear();
    TOKEND_RETURN_IF_ERROR(status);
    store_->observer->OnPageCopies(static_cast<int64_t>(copies.size()));
  }
  RefreshHeavyViews();
  return absl::OkStatus();
}

absl::Status BranchState::TakeHeavyPages(int64_t last, std::vector<PageRef>* old) {
  const int64_t next = heavy_->next_page();
  const int64_t tail = computed_ / page_tokens_;
  const bool part = computed_ % page_tokens_ > 0 && tail == next - 1;
  const auto first_new = [&] {
    return part && heavy_->layers[0].refs.back().owners() > 1 ? tail : next;
  };
  int64_t first = first_new();
  if (first > last) return absl::OkStatus();
  TOKEND_RETURN_IF_ERROR(store_->Fault(FaultPoint::kTakePages));
  const auto needed = [&] { return (last - first + 1) * layout_->layers; };
  absl::Status room = store_->MakeRoom(needed(), base_.principal);
  if (!room.ok() && first < next) {
    // Whose alone the tail page is, needs no copy of it.
    store_->GiveUpHead(base_.session.get());
    first = first_new();
    if (first > last) return absl::OkStatus();
    room = store_->MakeRoom(needed(), base_.principal);
  }
  TOKEND_RETURN_IF_ERROR(room);
  const uint64_t root = store_->tree.Ancestor(current_.node(), -1)->digest;
  for (int layer = 0; layer < layout_->layers; ++layer) {
    HeavySet::Layer& pages = heavy_->layers[layer];
    for (int64_t index = first; index <= last; ++index) {
      const base::PageId previous =
          pages.refs.empty() ? base::PageId::kNone : pages.refs.back().id();
      PageRef ref = store_->pool.Take({.root = root, .index = index, .layer = layer}, previous);
      TOKEND_CHECK(static_cast<bool>(ref));
      if (index < next) {
        old->push_back(std::exchange(pages.refs.back(), std::move(ref)));
      } else {
        pages.pages.push_back({.index = index});
        pages.refs.push_back(std::move(ref));
      }
    }
  }
  return absl::OkStatus();
}

void BranchState::RefreshHeavyViews() {
  const HeavyHitters rule = layout_->policy.heavy_hitters();
  const int64_t begin = rule.WindowBegin(rule.EpochOf(computed_));
  const int64_t sink_pages = rule.SinkPages(page_tokens_);
  const int64_t first_page = begin / page_tokens_;
  const bool gap = first_page > sink_pages;
  tables_.resize(layout_->layers);
  kept_.resize(layout_->layers);
  weights_.resize(layout_->layers);
  views_.resize(layout_->layers);
  for (int layer = 0; layer < layout_->layers; ++layer) {
    const HeavySet::Layer& pages = heavy_->layers[layer];
    tables_[layer].clear();
    kept_[layer].clear();
    for (size_t i = 0; i < pages.pages.size(); ++i) {
      const int64_t index = pages.pages[i].index;
      tables_[layer].push_back(pages.refs[i].id());
      if (gap && index >= sink_pages && index < first_page) {
        kept_[layer].push_back(static_cast<int32_t>(index));
      }
    }
    weights_[layer].assign(tables_[layer].size(), 0);
    views_[layer] = {.pages = tables_[layer].data(),
                     .sink_pages = gap ? static_cast<int32_t>(sink_pages) : 0,
                     .page_count = static_cast<int32_t>(tables_[layer].size()),
                     .first_page = gap ? first_page : 0,
                     .hidden_begin = std::min(rule.sink_tokens, begin),
                     .hidden_end = begin,
                     .kept = kept_[layer].data(),
                     .kept_pages = static_cast<int32_t>(kept_[layer].size()),
                     .scores = weights_[layer].data()};
  }
}

void BranchState::AdvanceHeavy(int64_t count) {
  const HeavyHitters rule = layout_->policy.heavy_hitters();
  computed_ += count;
  heavy_->tokens = computed_;
  for (int layer = 0; layer < layout_->layers; ++layer) {
    HeavySet::Layer& pages = heavy_->layers[layer];
    for (size_t i = 0; i < weights_[layer].size(); ++i) {
      pages.pages[i].score += std::exchange(weights_[layer][i], 0);
    }
  }
  if (computed_ % rule.epoch_tokens == 0) StartEpoch(rule);
}

std::shared_ptr<HeavySet> BranchState::NewHeavySet() const {
  return std::make_shared<HeavySet>(layout_->layers,
                                    layout_->policy.heavy_hitters().MostPages(page_tokens_));
}

void BranchState::KeepEpoch() {
  heavy_->epoch = nullptr;
  // No version and no fork has it.
  if (epoch_ == nullptr || epoch_.use_count() > 1) epoch_ = NewHeavySet();
  epoch_->Assign(*heavy_);
  heavy_->epoch = epoch_;
}

void BranchState::StartEpoch(const HeavyHitters& rule) {
  const int64_t unowned_before = store_->pool.unowned();
  std::vector<bool>& stays = heavy_scratch_.stays;
  for (HeavySet::Layer& pages : heavy_->layers) {
    KeepBest(rule, computed_, page_tokens_, absl::MakeSpan(pages.pages), &heavy_scratch_);
    size_t to = 0;
    for (size_t i = 0; i < stays.size(); ++i) {
      if (!stays[i]) continue;
      pages.pages[to] = pages.pages[i];
      if (to != i) pages.refs[to] = std::move(pages.refs[i]);
      ++to;
    }
    pages.pages.resize(to);
    pages.refs.resize(to);
  }
  const int64_t hidden = CountHidden(rule, *heavy_, page_tokens_, &heavy_scratch_.kept);
  if (computed_ > peak_) evicted_tokens_ += hidden - heavy_->hidden;
  heavy_->hidden = hidden;
  KeepEpoch();
  const int64_t freed = store_->pool.unowned() - unowned_before;
  if (freed > 0) store_->observer->OnEvictedPages(base::EvictionCause::kWindow, freed);
}

void BranchState::HangHeavy(Claim* claim, int64_t tokens) {
  // Pages that were prepared for nothing.
  for (HeavySet::Layer& pages : heavy_->layers) {
    while (!pages.pages.empty() && pages.pages.back().index * page_tokens_ >= heavy_->tokens) {
      pages.pages.pop_back();
      pages.refs.pop_back();
    }
  }
  if (heavy_->tokens <= tokens) {
    store_->tree.Hang(claim, heavy_);
  } else if (heavy_->epoch != nullptr && heavy_->epoch->tokens <= tokens) {
    store_->tree.Hang(claim, heavy_->epoch);
  }
}

int64_t BranchState::HeavyPagesNeeded(int64_t tokens) const {
  const HeavyHitters rule = layout_->policy.heavy_hitters();
  const int64_t all = (tokens + page_tokens_ - 1) / page_tokens_;
  int64_t own = 0;
  for (size_t layer = 0; heavy_ != nullptr && layer < heavy_->layers.size(); ++layer) {
    const HeavySet::Layer& pages = heavy_->layers[layer];
    for (size_t i = 0; i < pages.refs.size(); ++i) {
      // The epoch's first state has some of the pages as well.
      bool twice = false;
      if (heavy_->epoch != nullptr) {
        const std::vector<ScoredPage>& first = heavy_->epoch->layers[layer].pages;
        const auto found = std::lower_bound(
            first.begin(), first.end(), pages.pages[i].index,
            [](const ScoredPage& page, int64_t index) { return page.index < index; });
        twice = found != first.end() && found->index == pages.pages[i].index;
      }
      own += pages.refs[i].owners() <= (twice ? 2 : 1) ? 1 : 0;
    }
  }
  const int64_t most = layout_->layers * std::min(all, rule.MostPages(page_tokens_)) - own;
  // Behind those that it has, and perhaps a copy of the last.
  const int64_t next = heavy_ == nullptr ? 0 : heavy_->next_page();
  const int64_t more = layout_->layers * (std::max<int64_t>(0, all - next) + (next > 0 ? 1 : 0));
  return std::clamp<int64_t>(most, 0, more);
}

}  // namespace tokend::kv
