// StoreAudit: the prefix index, versions, and chains that forget.
#include "absl/strings/str_cat.h"
#include "core/kv/branch_state.h"
#include "tests/core/kv/store_audit.h"

// A test's view of one thread: it needs no lock, and cannot name the store's.
#define UNLOCKED ABSL_NO_THREAD_SAFETY_ANALYSIS

namespace tokend::kv {

void StoreAudit::CheckIndex(const std::vector<Node*>& nodes) UNLOCKED {
  size_t full = 0;
  for (const Node* node : nodes) {
    if (node->is_root() || !node->full()) continue;
    if (node->behind_gap()) {
      if (state_->tree.index_.contains(node)) Broken("a node behind a gap is indexed");
      continue;
    }
    ++full;
    // Of two nodes for the same tokens it would find one.
    if (state_->tree.FindChild(node->parent, node->tokens) != node) Broken("a node is not indexed");
  }
  if (full != state_->tree.index_.size()) Broken("the index holds nodes that are gone");
}

void StoreAudit::CheckSessions() UNLOCKED {
  for (const auto& [key, session] : state_->sessions) {
    if (static_cast<int>(session->versions.size()) > state_->options.max_versions) {
      Broken("more versions than retained");
    }
    int64_t previous = 0;
    for (const VersionRecord& version : session->versions) {
      if (static_cast<int64_t>(version.number) <= previous) Broken("version numbers");
      previous = static_cast<int64_t>(version.number);
      const Node* node = version.claim.node();
      const int64_t start = node->is_root() ? 0 : node->index * state_->options.page_tokens;
      const int64_t end = start + static_cast<int64_t>(node->tokens.size());
      if (version.tokens > end || version.tokens < start || version.computed > version.tokens) {
        Broken("a version does not end in its node");
      }
      if (version.number != session->head() && version.claim.kind() != Claim::Kind::kWeak) {
        Broken("an older version owns pages");
      }
    }
    if (previous >= session->next_number) Broken("next version number");
  }
}

// What ends in a chain ends where it has all that computing it takes.
void StoreAudit::CheckEnd(const Claim& claim, int64_t tokens, int64_t computed) UNLOCKED {
  const int64_t first = state_->tree.FirstPosition(claim.node());
  if (tokens < first || computed < first) {
    Broken(absl::StrCat(tokens, " tokens, of which ", computed, " had KV, and ", first,
                        " is the first position"));
  }
}

void StoreAudit::CheckForgetting() UNLOCKED {
  for (const auto& [key, session] : state_->sessions) {
    for (const VersionRecord& version : session->versions) {
      CheckEnd(version.claim, version.tokens, version.computed);
    }
  }
  for (const BranchState* branch : state_->branches) {
    CheckEnd(branch->base().claim, branch->base().tokens, branch->peak());
  }
}

}  // namespace tokend::kv
