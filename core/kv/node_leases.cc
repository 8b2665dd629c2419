// NodeTree: where a claim's KV in the full group ends.
#include <algorithm>

#include "core/kv/node_tree.h"

namespace tokend::kv {

// KV is closed towards the root: a jump never passes the last node with KV.
Node* NodeTree::FullTip(Node* node) const {
  for (; !node->has_full_kv(); ++touched_) {
    node = node->jump->has_full_kv() ? node->parent : node->jump;
  }
  return node;
}

void NodeTree::Enlist(Lease* lease, Node* tip) {
  lease->tip = tip;
  lease->previous = nullptr;
  lease->next = tip->leases;
  if (lease->next != nullptr) lease->next->previous = lease;
  tip->leases = lease;
  if (lease->strong) ++tip->owners;
}

void NodeTree::Delist(Lease* lease) {
  (lease->previous == nullptr ? lease->tip->leases : lease->previous->next) = lease->next;
  if (lease->next != nullptr) lease->next->previous = lease->previous;
  if (lease->strong) --lease->tip->owners;
}

void NodeTree::OpenLease(Claim* claim, const Claim* whole) {
  Node* tip = claim->node_;
  if (whole != nullptr && whole->lease_ != nullptr && !tip->has_full_kv()) {
    tip = whole->lease_->tip;
  }
  tip = FullTip(tip);
  claim->lease_ = std::make_unique<Lease>();
  claim->lease_->end = claim->node_;
  claim->lease_->strong = claim->kind_ == Claim::Kind::kStrong;
  Enlist(claim->lease_.get(), tip);
  Update(tip);
}

void NodeTree::CloseLease(Claim* claim) {
  Node* const tip = claim->lease_->tip;
  Delist(claim->lease_.get());
  claim->lease_.reset();
  Update(tip);
}

void NodeTree::MoveLeasesTo(Node* node) {
  Node* const parent = node->parent;
  ++parent->resident_children;
  for (Lease* lease = parent->leases; lease != nullptr;) {
    Lease* const next = lease->next;
    if (lease->end->index >= node->index && Ancestor(lease->end, node->index) == node) {
      Delist(lease);
      Enlist(lease, node);
    }
    lease = next;
  }
  Update(parent);
}

void NodeTree::MoveLeasesFrom(Node* node) {
  TOKEND_CHECK(node->owners == 0 && node->resident_children == 0);
  Node* const parent = node->parent;
  while (node->leases != nullptr) {
    Lease* const lease = node->leases;
    Delist(lease);
    Enlist(lease, parent);
    ++touched_;
  }
  --parent->resident_children;
  Update(parent, std::max(parent->last_use, node->last_use));
}

}  // namespace tokend::kv
