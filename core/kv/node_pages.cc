// NodeTree: which pages are there, and which go first.
#include <utility>

#include "core/kv/node_tree.h"

namespace tokend::kv {

void NodeTree::Attach(Node* node, std::vector<PageRef> pages, int rows) {
  const std::vector<LayerGroup>& groups = node->layout->groups;
  const bool had_full_kv = node->has_full_kv();
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!pages[groups[g].layers.front()] || rows <= node->rows[g]) continue;
    if (node->pages.empty()) node->pages = NewPages();
    for (int layer : groups[g].layers) {
      std::swap(node->pages[layer], pages[layer]);
      if (pool_->hooks() != nullptr) pool_->hooks()->OnAttached(node->pages[layer].id(), *node);
    }
    node->resident |= 1u << g;
    node->rows[g] = rows;
  }
  if (!had_full_kv && node->has_full_kv()) {
    TOKEND_CHECK(node->parent->has_full_kv());
    MoveLeasesTo(node);
  }
  GiveBack(std::move(pages));
  Update(node);
}

std::vector<PageRef> NodeTree::TakePages(Claim* claim, int rows) {
  Node* const node = claim->node_;
  TOKEND_CHECK(claim->kind_ == Claim::Kind::kStrong && node->rows_of_all() > 0);
  for (size_t g = 0; g < node->layout->groups.size(); ++g) {
    const bool alone = node->layout->groups[g].full()
                           ? node->owners == 1 && node->resident_children == 0
                           : node->windows[g].strong == 1;
    if (!alone) return {};
  }
  std::vector<PageRef> pages = std::exchange(node->pages, NewPages());
  if (pool_->hooks() != nullptr) {
    for (const PageRef& page : pages) pool_->hooks()->OnDetached(page.id(), rows);
  }
  Drop(std::move(*claim));
  FreePages(node, node->resident);
  Update(node);
  return pages;
}

void NodeTree::FreePages(Node* node, uint32_t groups) {
  groups &= node->resident;
  if (groups == 0) return;
  for (size_t g = 0; g < node->layout->groups.size(); ++g) {
    if ((groups >> g & 1) == 0) continue;
    for (int layer : node->layout->groups[g].layers) node->pages[layer].Reset();
    node->rows[g] = 0;
  }
  node->resident &= ~groups;
  if (node->resident == 0) GiveBack(std::exchange(node->pages, {}));
  if ((groups & node->layout->full_groups) != 0) MoveLeasesFrom(node);
}

bool NodeTree::Evict(int64_t free) {
  retired_.clear();
  while (pool_->free() < free) {
    Node* node = cached_.oldest != nullptr ? cached_.oldest : kept_.oldest;
    if (node == nullptr) return false;
    FreePages(node, LooseGroups(node));
    Update(node);
    DeleteIfUnused(node);
  }
  return true;
}

uint32_t NodeTree::LooseGroups(const Node* node) const {
  uint32_t loose = 0;
  for (size_t g = 0; g < node->layout->groups.size(); ++g) {
    const bool owned = node->layout->groups[g].full()
                           ? node->owners > 0 || node->resident_children > 0
                           : node->windows[g].strong > 0;
    if (!owned) loose |= 1u << g;
  }
  return loose & node->resident;
}

void NodeTree::Unlist(Node* node) {
  LooseList& list = ListOf(node->loose);
  (node->loose_previous == nullptr ? list.oldest : node->loose_previous->loose_next) =
      node->loose_next;
  (node->loose_next == nullptr ? list.newest : node->loose_next->loose_previous) =
      node->loose_previous;
  node->loose_previous = node->loose_next = nullptr;
}

void NodeTree::Update(Node* node, int64_t last_use) {
  ++touched_;
  const uint32_t groups = LooseGroups(node);
  int64_t pages = 0;
  for (size_t g = 0; g < node->layout->groups.size(); ++g) {
    if ((groups >> g & 1) == 0) continue;
    pages += static_cast<int64_t>(node->layout->groups[g].layers.size());
  }
  loose_pages_ += pages - node->loose_pages;
  node->loose_pages = pages;
  const Node::Loose loose = pages == 0       ? Node::Loose::kNone
                            : node->refs > 0 ? Node::Loose::kKept
                                             : Node::Loose::kCached;
  if (loose == node->loose && loose != Node::Loose::kNone) return;
  node->last_use = last_use;
  if (node->loose != Node::Loose::kNone) Unlist(node);
  node->loose = loose;
  if (loose == Node::Loose::kNone) return;
  LooseList& list = ListOf(loose);
  // Used now, or the parent of one that was used long ago.
  Node* previous = list.newest;
  if (previous != nullptr && previous->last_use > last_use) {
    previous = nullptr;
    Node* at = list.oldest;
    for (; at != nullptr && at->last_use < last_use; at = at->loose_next, ++touched_) {
      previous = at;
    }
  }
  node->loose_previous = previous;
  node->loose_next = previous == nullptr ? list.oldest : previous->loose_next;
  (previous == nullptr ? list.oldest : previous->loose_next) = node;
  (node->loose_next == nullptr ? list.newest : node->loose_next->loose_previous) = node;
}

}  // namespace tokend::kv
