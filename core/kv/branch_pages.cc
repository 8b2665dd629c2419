// BranchState: its pages and page tables.
#include <algorithm>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/kv/branch_state.h"

namespace tokend::kv {

void BranchState::DeriveTables() {
  if (derived_) return;
  derived_ = true;
  tables_.resize(layout_->layers);
  views_.resize(layout_->layers);
  for (size_t g = 0; g < layout_->groups.size(); ++g) {
    const LayerGroup& group = layout_->groups[g];
    table_reach_[g] = Reachable(group.mask, current_.position(), page_tokens_);
    const std::vector<Node*> nodes =
        store_->tree.Reach(current_.node(), current_.position(), group.mask);
    const int64_t most = (reserved_ + page_tokens_ - 1) / page_tokens_;
    for (int layer : group.layers) {
      if (group.full()) tables_[layer].reserve(static_cast<size_t>(most));
      for (const Node* node : nodes) tables_[layer].push_back(node->pages[layer].id());
    }
  }
}

void BranchState::RefreshViews() {
  for (int layer = 0; layer < layout_->layers; ++layer) {
    const int group = layout_->group_of_layer[layer];
    views_[layer] = {.pages = tables_[layer].data(),
                     .sink_pages = table_reach_[group].sink_pages,
                     .page_count = static_cast<int32_t>(tables_[layer].size()),
                     .first_page = table_reach_[group].first_page,
                     .mask = layout_->groups[group].mask};
  }
}

int64_t BranchState::NodesMissing(int64_t last) const {
  return last - current_.node()->index - static_cast<int64_t>(prepared_.size());
}

absl::Status BranchState::TakePages(int64_t last) {
  int64_t nodes = NodesMissing(last);
  if (nodes <= 0) return absl::OkStatus();
  TOKEND_RETURN_IF_ERROR(store_->Fault(FaultPoint::kTakePages));
  absl::Status room = store_->MakeRoom(nodes * layout_->layers, base_.principal);
  if (!room.ok() && donor_ && TakeDonorPages()) {
    if (--nodes == 0) return absl::OkStatus();
    room = store_->MakeRoom(nodes * layout_->layers, base_.principal);
  }
  TOKEND_RETURN_IF_ERROR(room);
  const uint64_t root = store_->tree.Ancestor(current_.node(), -1)->digest;
  for (int64_t index = last - nodes + 1; index <= last; ++index) {
    std::vector<PageRef>& pages = prepared_.emplace_back(store_->tree.NewPages());
    for (int layer = 0; layer < layout_->layers; ++layer) {
      std::vector<base::PageId>& table = tables_[layer];
      pages[layer] = store_->pool.Take({.root = root, .index = index, .layer = layer},
                                       table.empty() ? base::PageId::kNone : table.back());
      TOKEND_CHECK(static_cast<bool>(pages[layer]));
      table.push_back(pages[layer].id());
    }
    store_->branch_pages += layout_->layers;
  }
  return absl::OkStatus();
}

bool BranchState::TakeDonorPages() {
  store_->GiveUpHead(base_.session.get());
  std::vector<PageRef> pages = store_->tree.TakePages(&donor_, donor_rows_);
  if (pages.empty()) return false;
  for (int layer = 0; layer < layout_->layers; ++layer) tables_[layer].push_back(pages[layer].id());
  prepared_.push_back(std::move(pages));
  store_->branch_pages += layout_->layers;
  return true;
}

void BranchState::ReturnPages(size_t keep) {
  while (prepared_.size() > keep) {
    for (std::vector<base::PageId>& table : tables_) table.pop_back();
    store_->tree.GiveBack(std::move(prepared_.back()));
    prepared_.pop_back();
    store_->branch_pages -= layout_->layers;
  }
}

absl::Status BranchState::CopyDonorRows() {
  std::vector<ops::PageCopy> copies;
  {
    base::MutexLock lock(&store_->mu);
    for (int layer = 0; layer < layout_->layers; ++layer) {
      copies.push_back({.from = donor_.node()->pages[layer].id(),
                        .to = prepared_[0][layer].id(),
                        .rows = donor_rows_});
    }
  }
  // The claim keeps the donor's pages; the engine thread alone could replace them.
  absl::Status status = store_->backend->CopyPages(copies);
  base::MutexLock lock(&store_->mu);
  if (!status.ok()) {
    ReturnPages(0);
    return status;
  }
  store_->observer->OnPageCopies(static_cast<int64_t>(copies.size()));
  store_->tree.Drop(std::move(donor_));
  return absl::OkStatus();
}

int64_t BranchState::step_rows() const {
  if (is_heavy()) {
    const HeavyHitters rule = layout_->policy.heavy_hitters();
    return std::min(tokens(), rule.EpochOf(computed_) + rule.epoch_tokens) - computed_;
  }
  if (!lead_in_) return tokens() - computed_;
  return (goal_ ? sinks_end_ : lead_in_->end) - computed_;
}

absl::Status BranchState::Prepare(int64_t count) {
  TOKEND_CHECK(count >= 1 && computed_ + count <= tokens());
  if (is_heavy()) return PrepareHeavy(count);
  {
    base::MutexLock lock(&store_->mu);
    if (!matched_) MatchLocked();
    count = std::min(count, step_rows());
    if (lead_in_ && !goal_) return PrepareLeadIn(count);
    DeriveTables();
    if (count > 1) SlideTo(computed_);
    TOKEND_RETURN_IF_ERROR(TakePages((computed_ + count - 1) / page_tokens_));
  }
  if (donor_) TOKEND_RETURN_IF_ERROR(CopyDonorRows());
  RefreshViews();
  return absl::OkStatus();
}

bool BranchState::PrepareAhead() {
  base::MutexLock lock(&store_->mu);
  TOKEND_CHECK(computed_ + 1 == tokens());
  if (is_heavy() || lead_in_ || donor_ || !derived_) return false;
  // As Advance will, so that no more pages are held than a step may need.
  SlideTo(tokens() - page_tokens_);
  const int64_t last = tokens() / page_tokens_;
  const bool free = NodesMissing(last) * layout_->layers <= store_->pool.free();
  const bool taken = free && TakePages(last).ok();
  RefreshViews();
  return taken;
}

void BranchState::SlideTo(int64_t position) {
  if (position <= current_.position()) return;
  const int64_t freed = store_->tree.Slide(&current_, position);
  if (freed > 0) store_->observer->OnEvictedPages(base::EvictionCause::kWindow, freed);
  for (size_t g = 0; g < layout_->groups.size(); ++g) {
    const ReachablePages before = table_reach_[g];
    const ReachablePages after = Reachable(layout_->groups[g].mask, position, page_tokens_);
    if (before == after) continue;
    // The sinks stay in front, until none sees them.
    const int64_t sinks_gone = std::max(0, before.sink_pages - after.sink_pages);
    const int64_t gone =
        sinks_gone + after.first_page - std::max<int64_t>(before.first_page, after.sink_pages);
    for (int layer : layout_->groups[g].layers) {
      const auto from = tables_[layer].begin() + after.sink_pages;
      tables_[layer].erase(from, from + gone);
    }
    table_reach_[g] = after;
  }
}

void BranchState::FinishNode() {
  const int64_t index = current_.node()->index + 1;
  const int64_t begin = index * page_tokens_;
  std::vector<int32_t> scratch;
  Node* const node = FindOrAdd(current_.node(), Tokens(begin, begin + page_tokens_, &scratch));
  store_->tree.Attach(node, std::move(prepared_.front()), page_tokens_);
  prepared_.erase(prepared_.begin());
  store_->branch_pages -= layout_->layers;
  store_->tree.Extend(&current_, node);
  // Another branch may have been first with the same tokens: then its pages stay.
  for (int layer = 0; layer < layout_->layers; ++layer) {
    const ReachablePages& reach = table_reach_[layout_->group_of_layer[layer]];
    tables_[layer][reach.sink_pages + index - reach.first_page] = node->pages[layer].id();
  }
}

void BranchState::Advance(int64_t count) {
  base::MutexLock lock(&store_->mu);
  const int64_t end = computed_ + count;
  TOKEND_CHECK(count >= 1 && count <= step_rows() && !donor_);
  if (!ran_) {
    store_->observer->OnPrefixQuery(tokens() - base_.computed,
                                    std::max<int64_t>(0, computed_ - base_.computed));
  }
  ran_ = true;
  const int64_t recomputed = std::min(peak_, end) - computed_;
  if (recomputed > 0) {
    recomputed_tokens_ += recomputed;
    store_->observer->OnRecomputedTokens(recomputed);
  }
  if (heavy_ != nullptr) AdvanceHeavy(count);
  peak_ = std::max(peak_, end);
  if (heavy_ != nullptr) return;
  if (lead_in_ && !goal_) return AdvanceLeadIn(count);
  const int64_t prepared_end =
      (current_.node()->index + 1 + static_cast<int64_t>(prepared_.size())) * page_tokens_;
  TOKEND_CHECK(end <= prepared_end);
  while ((current_.node()->index + 2) * page_tokens_ <= end) FinishNode();
  computed_ = end;
  // One page more than the mask needs, so that a version that ends a few tokens
  // earlier (a stop string) finds its window whole.
  SlideTo(computed_ - page_tokens_);
  RefreshViews();
  if (goal_ && computed_ == sinks_end_) LeaveSinks();
}

int64_t BranchState::MostPages(const LayerGroup& group, int64_t chunk_tokens) const {
  // The window before a chunk's first position and the chunk, or the window and
  // the page more that a decode step keeps, wherever they start.
  const int64_t span =
      group.mask.window_tokens - 1 + std::max<int64_t>(chunk_tokens, page_tokens_ + 1);
  const int64_t sinks = (group.mask.sink_tokens + page_tokens_ - 1) / page_tokens_;
  return sinks + (span + 2 * page_tokens_ - 2) / page_tokens_;
}

int64_t BranchState::PagesInAll(int64_t tokens, int64_t chunk_tokens) const {
  const int64_t all = (tokens + page_tokens_ - 1) / page_tokens_;
  if (is_heavy()) {
    return layout_->layers * std::min(all, layout_->policy.heavy_hitters().MostPages(page_tokens_));
  }
  int64_t pages = 0;
  for (const LayerGroup& group : layout_->groups) {
    const int64_t most = group.full() ? all : std::min(all, MostPages(group, chunk_tokens));
    pages += most * static_cast<int64_t>(group.layers.size());
  }
  return pages;
}

int64_t BranchState::LayerBesideHead(const LayerGroup* group, int64_t nodes,
                                     int64_t chunk_tokens) const {
  const int64_t head_nodes = (base_.pinned + page_tokens_ - 1) / page_tokens_;
  // Nodes of the head that the branch has anew: behind a cut, and a last one that is not whole.
  const int64_t anew = std::max<int64_t>(0, head_nodes - base_.tokens / page_tokens_);
  int64_t hidden = 0;  // nodes that the head no longer sees
  int64_t own = nodes, head = head_nodes;
  if (group == nullptr) {
    const int64_t most = layout_->policy.heavy_hitters().MostPages(page_tokens_);
    own = std::min(own, most);
    head = std::min(head, most);
  } else if (group->full()) {
    return nodes + anew;
  } else {
    const ReachablePages reach = Reachable(group->mask, base_.pinned, page_tokens_);
    hidden = std::max<int64_t>(0, reach.first_page - reach.sink_pages);
    own = std::min(own, MostPages(*group, chunk_tokens));
    head -= hidden;
  }
  // They share what they can until the branch no longer sees it.
  const bool cut = base_.computed < base_.pinned;
  return cut ? own + head : std::min(own + head, nodes - hidden + anew);
}

int64_t BranchState::PagesBesideHead(int64_t tokens, int64_t chunk_tokens) const {
  if (base_.pinned == 0) return PagesInAll(tokens, chunk_tokens);
  const int64_t nodes = (tokens + page_tokens_ - 1) / page_tokens_;
  if (is_heavy()) return layout_->layers * LayerBesideHead(nullptr, nodes, chunk_tokens);
  int64_t pages = 0;
  for (const LayerGroup& group : layout_->groups) {
    pages +=
        LayerBesideHead(&group, nodes, chunk_tokens) * static_cast<int64_t>(group.layers.size());
  }
  return pages;
}

int64_t BranchState::PagesNeeded(int64_t tokens, int64_t chunk_tokens) const {
  base::MutexLock lock(&store_->mu);
  if (is_heavy()) return HeavyPagesNeeded(tokens);
  const int64_t all = (tokens + page_tokens_ - 1) / page_tokens_;
  // A lead-in counts as if it held nothing yet.
  const bool holds = current_ && !lead_in_;
  const int64_t end =
      holds ? current_.node()->index + 1 + static_cast<int64_t>(prepared_.size()) : 0;
  int64_t needed = 0;
  for (size_t g = 0; g < layout_->groups.size(); ++g) {
    const LayerGroup& group = layout_->groups[g];
    int64_t more = std::max<int64_t>(0, all - end);
    if (!group.full()) {
      // Pages with another owner do not come back when the window leaves them.
      int64_t own = static_cast<int64_t>(prepared_.size());
      if (holds) {
        for (const Node* node :
             store_->tree.Reach(current_.node(), current_.position(), group.mask)) {
          if (node->windows[g].strong == 1) ++own;
        }
      }
      more = std::min(more, std::max<int64_t>(0, MostPages(group, chunk_tokens) - own));
    }
    needed += more * static_cast<int64_t>(group.layers.size());
  }
  return needed;
}

}  // namespace tokend::kv
