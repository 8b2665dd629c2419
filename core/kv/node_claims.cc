// NodeTree: who owns what.
#include <algorithm>

#include "core/kv/node_tree.h"

namespace tokend::kv {

template <typename Fn>
void NodeTree::ForReach(Node* node, int64_t position, const ops::AttentionMask& mask, Fn fn) const {
  const ReachablePages reach = Reachable(mask, position, page_tokens_);
  for (; node->index >= reach.first_page; node = node->parent) fn(node);
  node = Ancestor(node, std::min<int64_t>(node->index, reach.sink_pages - 1));
  for (; !node->is_root(); node = node->parent) fn(node);
}

std::vector<Node*> NodeTree::Reach(Node* node, int64_t position,
                                   const ops::AttentionMask& mask) const {
  std::vector<Node*> nodes;
  ForReach(node, position, mask, [&](Node* reached) { nodes.push_back(reached); });
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

void NodeTree::Hold(const Claim& claim, int delta) {
  if (claim.kind_ == Claim::Kind::kTokens) return;
  const bool strong = claim.kind_ == Claim::Kind::kStrong;
  const std::vector<LayerGroup>& groups = claim.node_->layout->groups;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].full()) {
      if (strong) AddChain(claim.node_, delta);
      continue;
    }
    ForReach(claim.node_, claim.position_, groups[g].mask, [&](Node* node) {
      Node::Holds& holds = node->windows[g];
      (strong ? holds.strong : holds.weak) += delta;
      if (holds.strong == 0 && holds.weak == 0) FreePages(node, 1u << g);
      Update(node);
    });
  }
}

void NodeTree::AddChain(Node* node, int delta) {
  const bool was_owned = node->chain > 0;
  node->chain += delta;
  TOKEND_CHECK(node->chain >= 0);
  const bool is_owned = node->chain > 0;
  if (was_owned == is_owned) return;
  Update(node);
  if (node->parent == nullptr) return;
  (is_owned ? chain_additions_ : chain_removals_).push_back(node->parent);
}

void NodeTree::Settle() {
  while (!chain_additions_.empty() || !chain_removals_.empty()) {
    std::vector<Node*>& queue = chain_additions_.empty() ? chain_removals_ : chain_additions_;
    const int delta = chain_additions_.empty() ? -1 : 1;
    Node* node = queue.back();
    queue.pop_back();
    AddChain(node, delta);
  }
}

Claim NodeTree::Take(Node* node, int64_t position, Claim::Kind kind) {
  Claim claim(node, position, kind);
  AddRef(node);
  Hold(claim, 1);
  return claim;
}

void NodeTree::Change(Claim* claim, Claim::Kind kind) {
  if (claim->kind_ == kind) return;
  Claim changed(claim->node_, claim->position_, kind);
  Hold(changed, 1);
  Hold(*claim, -1);
  changed.node_ = nullptr;
  claim->kind_ = kind;
}

void NodeTree::Extend(Claim* claim, Node* child) {
  TOKEND_CHECK(claim->kind_ == Claim::Kind::kStrong && child->parent == claim->node_);
  AddRef(child);
  const std::vector<LayerGroup>& groups = child->layout->groups;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].full()) {
      AddChain(child, 1);
      Settle();
      AddChain(claim->node_, -1);
    } else {
      ++child->windows[g].strong;
    }
  }
  Update(child);
  DropRef(claim->node_);
  claim->node_ = child;
}

int64_t NodeTree::Slide(Claim* claim, int64_t position) {
  TOKEND_CHECK(claim->kind_ == Claim::Kind::kStrong);
  if (position <= claim->position_) return 0;
  const int64_t free_before = pool_->free();
  const std::vector<LayerGroup>& groups = claim->node_->layout->groups;
  for (size_t g = 0; g < groups.size(); ++g) {
    const ReachablePages before = Reachable(groups[g].mask, claim->position_, page_tokens_);
    const ReachablePages after = Reachable(groups[g].mask, position, page_tokens_);
    if (before == after) continue;
    const int64_t first = std::max<int64_t>(before.first_page, after.sink_pages);
    Node* node = Ancestor(claim->node_, std::min(claim->node_->index, after.first_page - 1));
    for (; node->index >= first; node = node->parent) {
      --node->windows[g].strong;
      if (!IsOwned(node, static_cast<int>(g)) && node->windows[g].weak == 0) {
        FreePages(node, 1u << g);
      }
      Update(node);
    }
  }
  claim->position_ = position;
  return pool_->free() - free_before;
}

void NodeTree::Drop(Claim claim) {
  if (claim.node_ == nullptr) return;
  Hold(claim, -1);
  dropped_.push_back(std::exchange(claim.node_, nullptr));
}

bool NodeTree::IsOwned(const Node* node, int group) const {
  return node->layout->groups[group].full() ? node->chain > 0 : node->windows[group].strong > 0;
}

void NodeTree::Mark(Node* node, int group, bool pinned, bool* stop, Owned* owned) {
  if (node->mark_epoch != mark_epoch_) {
    node->mark_epoch = mark_epoch_;
    node->mark_seen = node->mark_shared = node->mark_pinned = 0;
  }
  const uint32_t bit = 1u << group;
  const bool resident = (node->resident & bit) != 0;
  const auto pages = static_cast<int64_t>(node->layout->groups[group].layers.size());
  if ((node->mark_pinned & bit) != 0 || (!pinned && (node->mark_shared & bit) != 0)) {
    *stop = true;
  } else if (pinned) {
    node->mark_pinned |= bit;
    if (resident) owned->pinned += pages;
  } else if ((node->mark_seen & bit) != 0) {
    node->mark_shared |= bit;
    if (resident) owned->shared += pages, owned->once -= pages;
  } else {
    node->mark_seen |= bit;
    if (resident) owned->once += pages;
  }
}

void NodeTree::Visit(const Claim& claim, bool pinned, Owned* owned) {
  if (claim.node_ == nullptr || claim.kind_ != Claim::Kind::kStrong) return;
  const std::vector<LayerGroup>& groups = claim.node_->layout->groups;
  for (int g = 0; g < static_cast<int>(groups.size()); ++g) {
    bool stop = false;
    if (groups[g].full()) {
      // What marked a node so that this one stops has marked its ancestors alike.
      for (Node* node = claim.node_; !stop && !node->is_root(); node = node->parent) {
        Mark(node, g, pinned, &stop, owned);
      }
    } else {
      ForReach(claim.node_, claim.position_, groups[g].mask,
               [&](Node* node) { Mark(node, g, pinned, &stop, owned); });
    }
  }
}

NodeTree::Owned NodeTree::Count(absl::Span<const Claim* const> pinned,
                                absl::Span<const Claim* const> others) {
  ++mark_epoch_;
  Owned owned;
  for (const Claim* claim : pinned) Visit(*claim, true, &owned);
  for (const Claim* claim : others) Visit(*claim, false, &owned);
  return owned;
}

int64_t NodeTree::ResidentRows(const Claim& claim, int64_t end) const {
  if (claim.node_ == nullptr) return 0;
  // Masks are equal or one hides more: the layers that see most decide.
  const std::vector<LayerGroup>& groups = claim.node_->layout->groups;
  int64_t most = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    int64_t rows = 0;
    ForReach(claim.node_, claim.position_, groups[g].mask, [&](Node* node) {
      const int64_t start = node->index * page_tokens_;
      if ((node->resident >> g & 1) != 0) rows += std::clamp<int64_t>(end - start, 0, node->rows);
    });
    most = std::max(most, rows);
  }
  return most;
}

}  // namespace tokend::kv
