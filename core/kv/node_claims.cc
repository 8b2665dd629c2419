// NodeTree: who owns what.
#include <algorithm>

#include "core/kv/node_tree.h"

namespace tokend::kv {

template <typename Fn>
void NodeTree::ForReach(Node* node, int64_t position, const ops::AttentionMask& mask, Fn fn) const {
  const ReachablePages reach = Reachable(mask, position, page_tokens_);
  for (; node->index >= reach.first_page; node = node->parent, ++touched_) fn(node);
  if (reach.sink_pages == 0) return;
  node = node->layout->sink_pages == reach.sink_pages ? node->sinks
                                                      : Ancestor(node, reach.sink_pages - 1);
  for (; !node->is_root(); node = node->parent, ++touched_) fn(node);
}

std::vector<Node*> NodeTree::Reach(Node* node, int64_t position,
                                   const ops::AttentionMask& mask) const {
  std::vector<Node*> nodes;
  ForReach(node, position, mask, [&](Node* reached) { nodes.push_back(reached); });
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

void NodeTree::Hold(Claim* claim, const Claim* whole) {
  if (claim->kind_ == Claim::Kind::kTokens) return;
  if (claim->node_->layout->full_groups != 0) OpenLease(claim, whole);
  HoldWindows(*claim, 1);
}

void NodeTree::Release(Claim* claim) {
  if (claim->heavy_ != nullptr) retired_.push_back(std::move(claim->heavy_));
  if (claim->kind_ == Claim::Kind::kTokens) return;
  if (claim->lease_ != nullptr) CloseLease(claim);
  HoldWindows(*claim, -1);
}

void NodeTree::HoldWindows(const Claim& claim, int delta) {
  const bool strong = claim.kind_ == Claim::Kind::kStrong;
  const std::vector<LayerGroup>& groups = claim.node_->layout->groups;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].full()) continue;
    ForReach(claim.node_, claim.position_, groups[g].mask, [&](Node* node) {
      Node::Holds& holds = node->windows[g];
      (strong ? holds.strong : holds.weak) += delta;
      if (holds.strong == 0 && holds.weak == 0) FreePages(node, 1u << g);
      Update(node);
    });
  }
}

Claim NodeTree::Take(Node* node, int64_t position, Claim::Kind kind, const Claim* whole) {
  Claim claim(node, position, kind);
  AddRef(node);
  Hold(&claim, whole);
  if (kind == Claim::Kind::kStrong && whole != nullptr && whole->heavy() != nullptr) {
    const HeavySet& heavy = *whole->heavy();
    claim.heavy_ = heavy.tokens <= position ? whole->heavy_ : heavy.epoch;
    if (claim.heavy_ != nullptr && claim.heavy_->tokens > position) claim.heavy_ = nullptr;
  }
  return claim;
}

void NodeTree::Change(Claim* claim, Claim::Kind kind) {
  if (claim->kind_ == kind) return;
  Claim changed(claim->node_, claim->position_, kind);
  Hold(&changed, claim);
  Release(claim);
  changed.node_ = nullptr;
  claim->kind_ = kind;
  claim->lease_ = std::move(changed.lease_);
}

void NodeTree::Extend(Claim* claim, Node* child) {
  TOKEND_CHECK(claim->kind_ == Claim::Kind::kStrong && child->parent == claim->node_);
  AddRef(child);
  const std::vector<LayerGroup>& groups = child->layout->groups;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].full()) ++child->windows[g].strong;
  }
  if (Lease* const lease = claim->lease_.get(); lease != nullptr) {
    TOKEND_CHECK(lease->tip == claim->node_ && child->has_full_kv());
    Delist(lease);
    lease->end = child;
    Enlist(lease, child);
  }
  Update(child);
  DropRef(claim->node_);
  claim->node_ = child;
}

int64_t NodeTree::Slide(Claim* claim, int64_t position) {
  TOKEND_CHECK(claim->kind_ == Claim::Kind::kStrong);
  if (position <= claim->position_) return 0;
  const int64_t unowned_before = pool_->unowned();
  const std::vector<LayerGroup>& groups = claim->node_->layout->groups;
  for (size_t g = 0; g < groups.size(); ++g) {
    const ReachablePages before = Reachable(groups[g].mask, claim->position_, page_tokens_);
    const ReachablePages after = Reachable(groups[g].mask, position, page_tokens_);
    if (before == after) continue;
    const auto leave = [&](int64_t begin, int64_t end) {
      Node* node = Ancestor(claim->node_, std::min(claim->node_->index, end - 1));
      for (; node->index >= begin && !node->is_root(); node = node->parent) {
        --node->windows[g].strong;
        if (node->windows[g].strong == 0 && node->windows[g].weak == 0) FreePages(node, 1u << g);
        Update(node);
      }
    };
    leave(std::max<int64_t>(before.first_page, after.sink_pages), after.first_page);
    if (before.sink_pages > after.sink_pages) leave(after.sink_pages, before.sink_pages);
  }
  claim->position_ = position;
  return pool_->unowned() - unowned_before;
}

void NodeTree::Drop(Claim claim) {
  if (claim.node_ == nullptr) return;
  Release(&claim);
  retired_.clear();
  dropped_.push_back(std::exchange(claim.node_, nullptr));
}

void NodeTree::Mark(Node* node, int group, Owner owner, bool* stop, Owned* owned) {
  ++touched_;
  if (node->mark_epoch != mark_epoch_) {
    node->mark_epoch = mark_epoch_;
    node->mark_seen = node->mark_shared = node->mark_pinned = 0;
  }
  const uint32_t bit = 1u << group;
  const bool resident = (node->resident & bit) != 0;
  const auto pages = static_cast<int64_t>(node->layout->groups[group].layers.size());
  const bool seen = (node->mark_seen & bit) != 0;
  const bool again = seen && node->mark_by[group] == claimant_;
  if ((node->mark_pinned & bit) != 0 ||
      (owner == Owner::kOther && (again || (node->mark_shared & bit) != 0)) ||
      (owner == Owner::kDying && seen)) {
    *stop = true;
  } else if (owner == Owner::kPinned) {
    node->mark_pinned |= bit;
    if (resident) owned->pinned += pages;
  } else if (seen) {
    node->mark_shared |= bit;
    if (resident) owned->shared += pages, owned->once -= pages;
  } else {
    node->mark_seen |= bit;
    node->mark_by[group] = claimant_;
    if (resident) owned->once += pages;
  }
}

void NodeTree::Visit(const Claim& claim, Owner owner, Owned* owned) {
  if (claim.node_ == nullptr || claim.kind_ != Claim::Kind::kStrong) return;
  if (claim.heavy_ != nullptr) return VisitHeavy(*claim.heavy_, owner, owned);
  const std::vector<LayerGroup>& groups = claim.node_->layout->groups;
  for (int g = 0; g < static_cast<int>(groups.size()); ++g) {
    bool stop = false;
    if (groups[g].full()) {
      // What marked a node so that this one stops has marked its ancestors alike.
      for (Node* node = claim.lease_->tip; !stop && !node->is_root(); node = node->parent) {
        Mark(node, g, owner, &stop, owned);
      }
    } else {
      ForReach(claim.node_, claim.position_, groups[g].mask,
               [&](Node* node) { Mark(node, g, owner, &stop, owned); });
    }
  }
}

void NodeTree::VisitHeavy(const HeavySet& heavy, Owner owner, Owned* owned) {
  page_marks_.resize(static_cast<size_t>(pool_->total()));
  for (const HeavySet::Layer& layer : heavy.layers) {
    for (const PageRef& ref : layer.refs) {
      PageMark& mark = page_marks_[static_cast<size_t>(ref.id())];
      const bool seen = mark.epoch == mark_epoch_;
      if (!seen) mark = {.epoch = mark_epoch_};
      if (mark.pinned || (seen && (mark.shared || owner == Owner::kDying))) continue;
      if (owner == Owner::kPinned) {
        mark.pinned = true;
        ++owned->pinned;
      } else if (seen) {
        mark.shared = true;
        ++owned->shared;
        --owned->once;
      } else {
        ++owned->once;
      }
    }
  }
}

NodeTree::Owned NodeTree::Count(absl::Span<const Claim* const> pinned,
                                absl::Span<const Claimant> others, absl::Span<const Claim> dying) {
  ++mark_epoch_;
  Owned owned;
  for (const Claim* claim : pinned) Visit(*claim, Owner::kPinned, &owned);
  for (const Claimant& claimant : others) {
    ++claimant_;
    Visit(*claimant.claim, Owner::kOther, &owned);
    if (claimant.other != nullptr) Visit(*claimant.other, Owner::kOther, &owned);
  }
  for (const Claim& claim : dying) Visit(claim, Owner::kDying, &owned);
  return owned;
}

int64_t NodeTree::ResidentRows(const Claim& claim, int64_t end) const {
  if (claim.node_ == nullptr) return 0;
  if (claim.heavy_ != nullptr) {
    int64_t rows = 0;
    end = std::min(end, claim.heavy_->tokens);
    for (const ScoredPage& page : claim.heavy_->layers[0].pages) {
      rows += std::clamp<int64_t>(end - page.index * page_tokens_, 0, page_tokens_);
    }
    return rows;
  }
  // The layers that see most decide.
  const std::vector<LayerGroup>& groups = claim.node_->layout->groups;
  int64_t most = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    int64_t rows = 0;
    const auto add = [&](const Node* node) {
      const int64_t start = node->index * page_tokens_;
      rows += std::clamp<int64_t>(end - start, 0, node->rows[g]);
    };
    if (!groups[g].full()) {
      ForReach(claim.node_, claim.position_, groups[g].mask, add);
    } else if (const Node* const tip = claim.lease_->tip; !tip->is_root()) {
      rows = std::min(end, tip->index * page_tokens_);
      add(tip);
    }
    most = std::max(most, rows);
  }
  return most;
}

}  // namespace tokend::kv
