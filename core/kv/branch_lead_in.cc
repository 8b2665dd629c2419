// BranchState: computing dropped KV of a windowed session again.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/kv/branch_state.h"

namespace tokend::kv {

Node* BranchState::LastNode(int64_t nodes) {
  NodeTree& tree = store_->tree;
  Node* node = tree.Ancestor(base_.claim.node(), pending_start_ / page_tokens_ - 1);
  std::vector<int32_t> scratch;
  for (int64_t index = node->index + 1; index < nodes; ++index) {
    const int64_t at = index * page_tokens_;
    Node* const child = tree.FindChild(node, Tokens(at, at + page_tokens_, &scratch));
    if (child == nullptr) return node;
    node = child;
  }
  return tree.Ancestor(node, nodes - 1);
}

// Nodes [begin, end) of this branch's tokens; nullptr from the first that is not
// there on.
std::vector<Node*> BranchState::Path(int64_t begin, int64_t end) {
  std::vector<Node*> path(std::max<int64_t>(0, end - begin), nullptr);
  for (Node* node : store_->tree.Chain(LastNode(end), begin)) path[node->index - begin] = node;
  return path;
}

uint32_t BranchState::WholeSinks(int64_t position) {
  uint32_t whole = 0;
  for (size_t g = 0; g < layout_->groups.size(); ++g) {
    bool is_whole = true;
    for (const Node* node : Path(0, SinkPages(layout_->groups[g].mask, position, page_tokens_))) {
      is_whole = is_whole && node != nullptr && (node->whole() >> g & 1) != 0;
    }
    if (is_whole) whole |= 1u << g;
  }
  return whole;
}

LeadIn BranchState::PlanRecompute(int64_t limit) {
  const int64_t end = std::min(peak_, limit) / page_tokens_ * page_tokens_;
  if (WindowBegin(*layout_, end) == 0) return {};
  Survivors survivors;
  for (int g = 0; g < static_cast<int>(layout_->groups.size()); ++g) {
    const auto has = [g](const Node* node) {
      return node != nullptr && (node->whole() >> g & 1) != 0;
    };
    if (layout_->groups[g].full()) {
      const Node* const tip = store_->tree.FullTip(LastNode(end / page_tokens_));
      survivors.full_until[g] = (tip->index + (has(tip) ? 1 : 0)) * page_tokens_;
      continue;
    }
    const int64_t begin = WindowBegin(*layout_, g, end) / page_tokens_;
    const std::vector<Node*> path = Path(begin, end / page_tokens_);
    if (std::all_of(path.begin(), path.end(), has)) survivors.windows |= 1u << g;
  }
  return PlanLeadIn(*layout_, end, survivors);
}

void BranchState::StartLeadIn(LeadIn plan) {
  NodeTree& tree = store_->tree;
  Node* node = tree.Ancestor(base_.claim.node(), pending_start_ / page_tokens_ - 1);
  node = tree.Ancestor(node, plan.end / page_tokens_ - 1);
  std::vector<int32_t> scratch;
  while (node->index + 1 < plan.end / page_tokens_) {
    const int64_t at = (node->index + 1) * page_tokens_;
    node = FindOrAdd(node, Tokens(at, at + page_tokens_, &scratch));
  }
  sinks_end_ = 0;
  int64_t position = plan.end;
  const uint32_t whole = WholeSinks(plan.start);
  for (size_t g = 0; g < layout_->groups.size(); ++g) {
    const ops::AttentionMask& mask = layout_->groups[g].mask;
    const int64_t pages = SinkPages(mask, plan.start, page_tokens_);
    // Sinks that are out of sight at the end are held as long as the lead-in runs.
    if (pages > SinkPages(mask, plan.end, page_tokens_)) position = plan.start;
    if ((whole >> g & 1) == 0) sinks_end_ = std::max(sinks_end_, pages * page_tokens_);
  }
  goal_ = tree.Take(node, position, Claim::Kind::kStrong);
  lead_in_ = std::move(plan);
  lead_node_ = lead_in_->start / page_tokens_;
  current_ = tree.Take(tree.Ancestor(node, -1), 0, Claim::Kind::kStrong);
  computed_ = 0;
  if (sinks_end_ == 0) LeaveSinks();
}

// The positions between the sinks and the lead-in are skipped.
void BranchState::LeaveSinks() {
  computed_ = lead_in_->start;
  store_->tree.Drop(std::move(current_));
  current_ = std::move(goal_);
  ReturnPages(0);
  derived_ = false;
  tables_.clear();
  if (lead_in_->start == lead_in_->end) FinishLeadIn();
}

absl::Status BranchState::PrepareLeadIn(int64_t count) {
  TOKEND_CHECK(computed_ + count <= lead_in_->end);
  const int64_t last = (computed_ + count - 1) / page_tokens_;
  const auto held = static_cast<int64_t>(lead_pages_.size());
  int64_t needed = 0;
  const auto stores = [&](int64_t node, int layer) {
    return (node + 1) * page_tokens_ > lead_in_->store_begin[layer];
  };
  for (int64_t node = lead_node_ + held; node <= last; ++node) {
    for (int layer = 0; layer < layout_->layers; ++layer) needed += stores(node, layer) ? 1 : 0;
  }
  if (needed > 0) TOKEND_RETURN_IF_ERROR(store_->Fault(FaultPoint::kTakePages));
  TOKEND_RETURN_IF_ERROR(store_->MakeRoom(needed, base_.principal));
  const uint64_t root = store_->tree.Ancestor(current_.node(), -1)->digest;
  for (int64_t node = lead_node_ + held; node <= last; ++node) {
    std::vector<PageRef>& pages = lead_pages_.emplace_back(store_->tree.NewPages());
    for (int layer = 0; layer < layout_->layers; ++layer) {
      if (!stores(node, layer)) continue;
      const bool first = lead_pages_.size() == 1;
      const base::PageId previous =
          first ? base::PageId::kNone : lead_pages_[lead_pages_.size() - 2][layer].id();
      pages[layer] = store_->pool.Take({.root = root, .index = node, .layer = layer}, previous);
      TOKEND_CHECK(static_cast<bool>(pages[layer]));
      ++store_->branch_pages;
    }
  }
  DeriveLeadInTables();
  return absl::OkStatus();
}

void BranchState::DeriveLeadInTables() {
  NodeTree& tree = store_->tree;
  tables_.assign(layout_->layers, {});
  views_.assign(layout_->layers, {});
  for (int layer = 0; layer < layout_->layers; ++layer) {
    const int g = layout_->group_of_layer[layer];
    const LayerGroup& group = layout_->groups[g];
    const int64_t store_begin = lead_in_->store_begin[layer];
    std::vector<base::PageId>& table = tables_[layer];
    const int32_t sink_pages = SinkPages(group.mask, lead_in_->start, page_tokens_);
    // Full layers: all before what is stored. Windowed ones: sinks.
    const int64_t before = group.full() ? store_begin / page_tokens_ : sink_pages;
    for (const Node* node = tree.Ancestor(current_.node(), before - 1); !node->is_root();
         node = node->parent) {
      table.push_back(node->pages[layer].id());
    }
    std::reverse(table.begin(), table.end());
    int64_t first = -1;
    for (size_t i = 0; i < lead_pages_.size(); ++i) {
      if (!lead_pages_[i][layer]) continue;
      if (first < 0) first = lead_node_ + static_cast<int64_t>(i);
      table.push_back(lead_pages_[i][layer].id());
    }
    views_[layer] = {.pages = table.data(),
                     .sink_pages = sink_pages,
                     .page_count = static_cast<int32_t>(table.size()),
                     .first_page = group.full() ? 0 : std::max<int64_t>(first, sink_pages),
                     .mask = group.mask,
                     .store_begin = store_begin,
                     .attend_begin = lead_in_->attend_begin[layer]};
  }
}

void BranchState::AdvanceLeadIn(int64_t count) {
  computed_ += count;
  TOKEND_CHECK(computed_ <= lead_in_->end);
  for (size_t g = 0; g < layout_->groups.size(); ++g) {
    const LayerGroup& group = layout_->groups[g];
    if (group.full()) continue;
    const int64_t first = Reachable(group.mask, computed_, page_tokens_).first_page;
    for (int64_t node = lead_node_; node < first; ++node) {
      const int64_t at = node - lead_node_;
      if (at >= static_cast<int64_t>(lead_pages_.size())) break;
      for (int layer : group.layers) {
        PageRef& page = lead_pages_[at][layer];
        store_->branch_pages -= page ? 1 : 0;
        page.Reset();
      }
    }
  }
  while (!lead_pages_.empty() &&
         std::none_of(lead_pages_.front().begin(), lead_pages_.front().end(),
                      [](const PageRef& page) { return static_cast<bool>(page); })) {
    store_->tree.GiveBack(std::move(lead_pages_.front()));
    lead_pages_.erase(lead_pages_.begin());
    ++lead_node_;
  }
  if (computed_ == lead_in_->end) FinishLeadIn();
}

// Windowed layers' pages before the last window are gone by now: all rows that are
// left are exact.
void BranchState::FinishLeadIn() {
  NodeTree& tree = store_->tree;
  for (std::vector<PageRef>& pages : lead_pages_) {
    store_->branch_pages -= std::count_if(
        pages.begin(), pages.end(), [](const PageRef& page) { return static_cast<bool>(page); });
    tree.Attach(tree.Ancestor(current_.node(), lead_node_++), std::move(pages), page_tokens_);
  }
  lead_pages_.clear();
  computed_ = lead_in_->end;
  const int64_t freed = tree.Slide(&current_, computed_);
  if (freed > 0) store_->observer->OnEvictedPages(base::EvictionCause::kWindow, freed);
  lead_in_.reset();
  derived_ = false;
  tables_.clear();
  TOKEND_CHECK(ReachIsWhole(current_.node(), computed_));
}

void BranchState::DropLeadIn() {
  for (const std::vector<PageRef>& pages : lead_pages_) {
    store_->branch_pages -= std::count_if(
        pages.begin(), pages.end(), [](const PageRef& page) { return static_cast<bool>(page); });
  }
  lead_pages_.clear();
  lead_in_.reset();
  store_->tree.Drop(std::move(goal_));
}

}  // namespace tokend::kv
