// NodeTree: chains that forget their tokens.
#include <algorithm>

#include "core/kv/node_tree.h"

namespace tokend::kv {
namespace {

// Whether a claim reaches the node's KV.
bool Held(const Node* node) {
  return std::any_of(node->windows.begin(), node->windows.end(),
                     [](const Node::Holds& holds) { return holds.strong > 0 || holds.weak > 0; });
}

}  // namespace

int64_t NodeTree::KeptFrom(Node* node) const {
  Node* const sinks = node->sinks;
  if (node->layout->keep_nodes == 0 || node == sinks) return 0;
  for (; node->parent != sinks; ++touched_) {
    node = node->jump->index > sinks->index ? node->jump : node->parent;
  }
  return node->behind_gap() ? node->index * page_tokens_ : 0;
}

int64_t NodeTree::FirstPosition(Node* node) const {
  const int64_t kept = KeptFrom(node);
  return kept == 0 ? 0 : kept + node->layout->lead_tokens;
}

Node* NodeTree::FindCut(Node* end) const {
  if (end == end->sinks) return nullptr;
  int64_t last_used = end->index;
  for (Node* node = end; node->parent != node->sinks; node = node->parent, ++touched_) {
    // Its only ref is then that of its only child.
    if (node->refs != 1 || node->children != 1 || Held(node)) {
      last_used = node->index;
    } else if (last_used - node->index >= node->layout->keep_nodes) {
      return node;
    }
  }
  return nullptr;
}

void NodeTree::Cut(Node* node) {
  TOKEND_CHECK(node->layout->full_groups == 0 && node->parent != node->sinks && node->refs > 0);
  if (pool_->hooks() != nullptr) pool_->hooks()->OnCut(*node);
  index_.erase(node);
  dropped_.push_back(node->parent);
  Unlink(node);
  Link(node, node->sinks);
  AddRef(node->sinks);
  // Jumps may lead to what goes.
  Node* at = node;
  while (true) {
    at->jump = JumpFrom(at->parent);
    ++touched_;
    if (at->first_child != nullptr) {
      at = at->first_child;
      continue;
    }
    while (at != node && at->next_sibling == nullptr) at = at->parent;
    if (at == node) return;
    at = at->next_sibling;
  }
}

}  // namespace tokend::kv
