// NodeTree: which pages are there, and which go first.
#include "core/kv/node_tree.h"

namespace tokend::kv {

void NodeTree::Attach(Node* node, std::vector<PageRef>* pages, int rows) {
  if (rows >= node->rows) {
    if (node->pages.empty()) node->pages.resize(layers_);
    const std::vector<LayerGroup>& groups = node->layout->groups;
    for (size_t g = 0; g < groups.size(); ++g) {
      const uint32_t bit = 1u << g;
      if (rows == node->rows && (node->resident & bit) != 0) continue;
      for (int layer : groups[g].layers) {
        std::swap(node->pages[layer], (*pages)[layer]);
        if (pool_->hooks() != nullptr) pool_->hooks()->OnAttached(node->pages[layer].id(), *node);
      }
      node->resident |= bit;
    }
    node->rows = rows;
  }
  pages->clear();
  Update(node);
}

void NodeTree::FreePages(Node* node, uint32_t groups) {
  groups &= node->resident;
  if (groups == 0) return;
  for (size_t g = 0; g < node->layout->groups.size(); ++g) {
    if ((groups >> g & 1) == 0) continue;
    for (int layer : node->layout->groups[g].layers) node->pages[layer].Reset();
  }
  node->resident &= ~groups;
  if (node->resident != 0) return;
  node->rows = 0;
  node->pages = std::vector<PageRef>();
}

bool NodeTree::Evict(int64_t free) {
  Settle();
  while (pool_->free() < free) {
    Node* node = cached_.oldest != nullptr ? cached_.oldest : kept_.oldest;
    if (node == nullptr) return false;
    uint32_t loose = 0;
    for (size_t g = 0; g < node->layout->groups.size(); ++g) {
      if (!IsOwned(node, static_cast<int>(g))) loose |= 1u << g;
    }
    FreePages(node, loose);
    Update(node);
    DeleteIfUnused(node);
  }
  return true;
}

void NodeTree::Unlink(Node* node) {
  LooseList& list = ListOf(node->loose);
  (node->loose_previous == nullptr ? list.oldest : node->loose_previous->loose_next) =
      node->loose_next;
  (node->loose_next == nullptr ? list.newest : node->loose_next->loose_previous) =
      node->loose_previous;
  node->loose_previous = node->loose_next = nullptr;
}

void NodeTree::Update(Node* node) {
  int64_t pages = 0;
  for (size_t g = 0; g < node->layout->groups.size(); ++g) {
    if ((node->resident >> g & 1) != 0 && !IsOwned(node, static_cast<int>(g))) {
      pages += static_cast<int64_t>(node->layout->groups[g].layers.size());
    }
  }
  loose_pages_ += pages - node->loose_pages;
  node->loose_pages = pages;
  const Node::Loose loose = pages == 0       ? Node::Loose::kNone
                            : node->refs > 0 ? Node::Loose::kKept
                                             : Node::Loose::kCached;
  if (loose == node->loose) return;
  if (node->loose != Node::Loose::kNone) Unlink(node);
  node->loose = loose;
  if (loose == Node::Loose::kNone) return;
  LooseList& list = ListOf(loose);
  node->loose_previous = list.newest;
  (list.newest == nullptr ? list.oldest : list.newest->loose_next) = node;
  list.newest = node;
}

}  // namespace tokend::kv
