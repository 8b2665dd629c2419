#include "tests/core/kv/store_audit.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/kv/branch_state.h"

// A test's view of one thread: it needs no lock, and cannot name the store's.
#define UNLOCKED ABSL_NO_THREAD_SAFETY_ANALYSIS

namespace tokend::kv {

void StoreAudit::Broken(std::string what) {
  if (broken_.size() < 10) broken_.push_back(std::move(what));
}

std::vector<Node*> StoreAudit::AllNodes() UNLOCKED {
  std::vector<Node*> nodes;
  for (const auto& [key, root] : state_->tree.roots_) nodes.push_back(&root->node);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (Node* child = nodes[i]->first_child; child != nullptr; child = child->next_sibling) {
      nodes.push_back(child);
    }
  }
  return nodes;
}

std::vector<StoreAudit::Owner> StoreAudit::Owners() UNLOCKED {
  std::vector<Owner> owners;
  for (const auto& [key, session] : state_->sessions) {
    Owner owner = {.pinned = session->spec.pinned, .session = session.get()};
    for (const BranchState* branch : state_->branches) {
      if (branch->base().session == session && !branch->parked()) owner.runs = true;
    }
    if ((session->live_branches > 0) != owner.runs) Broken("live branches");
    for (const VersionRecord& version : session->versions) {
      if (version.claim.kind() == Claim::Kind::kStrong) owner.claims.push_back(&version.claim);
    }
    for (const Claim* claim : owner.claims) AddHeavy(*claim, &owner.heavy);
    owners.push_back(owner);
  }
  for (const BranchState* branch : state_->branches) {
    Owner owner = {.busy = true};
    for (const Claim* claim : branch->claims()) {
      if (*claim && claim->kind() == Claim::Kind::kStrong) owner.claims.push_back(claim);
    }
    for (const auto* nodes : {&branch->prepared(), &branch->lead_pages()}) {
      for (const std::vector<PageRef>& pages : *nodes) {
        for (const PageRef& page : pages) {
          if (page) owner.pages.push_back(page.id());
        }
      }
    }
    for (const Claim* claim : owner.claims) AddHeavy(*claim, &owner.heavy);
    owners.push_back(owner);
  }
  return owners;
}

std::vector<const Claim*> StoreAudit::AllClaims() UNLOCKED {
  std::vector<const Claim*> claims;
  for (const auto& [key, session] : state_->sessions) {
    for (const VersionRecord& version : session->versions) claims.push_back(&version.claim);
  }
  for (const BranchState* branch : state_->branches) {
    for (const Claim* claim : branch->claims()) {
      if (*claim) claims.push_back(claim);
    }
  }
  for (const Claim& claim : state_->dead) claims.push_back(&claim);
  return claims;
}

bool StoreAudit::Reaches(const Claim& claim, const Node* node, const LayerGroup& group) const {
  const Node* at = claim.node();
  while (at->index > node->index) at = at->parent;
  return at == node && !node->is_root() && InReach(claim, node, group);
}

bool StoreAudit::InReach(const Claim& claim, const Node* node, const LayerGroup& group) const {
  if (group.full()) return true;
  const int64_t page = state_->options.page_tokens;
  const ops::AttentionMask& mask = group.mask;
  const int64_t oldest = claim.position() - mask.window_tokens + 1;
  const bool gone =
      mask.sink_reach > 0 && claim.position() >= mask.sink_tokens + mask.sink_reach - 1;
  const int64_t sinks = gone ? 0 : mask.sink_tokens;  // that some query sees
  // Windows that touch the sinks' last page count as one run from the start.
  const int64_t sinks_end = (sinks + page - 1) / page * page;
  if (oldest < sinks_end + page) return true;
  return node->index * page < sinks || (node->index + 1) * page > oldest;
}

void StoreAudit::CheckCounts(const std::vector<Node*>& nodes) UNLOCKED {
  struct Count {
    int refs = 0, children = 0;
    std::array<Node::Holds, kMaxGroups> windows = {};
  };
  absl::flat_hash_map<const Node*, Count> counts;
  for (const Claim* claim : AllClaims()) {
    ++counts[claim->node()].refs;
    const bool strong = claim->kind() == Claim::Kind::kStrong;
    const Layout& layout = *claim->node()->layout;
    if (claim->kind() == Claim::Kind::kTokens) continue;
    for (const Node* node = claim->node(); !node->is_root(); node = node->parent) {
      for (size_t g = 0; g < layout.groups.size(); ++g) {
        if (layout.groups[g].full() || !InReach(*claim, node, layout.groups[g])) continue;
        Node::Holds& holds = counts[node].windows[g];
        ++(strong ? holds.strong : holds.weak);
      }
    }
  }
  for (const Node* node : state_->tree.dropped_) ++counts[node].refs;
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    const Node* node = *at;
    const Count count = counts[node];
    const std::string name = absl::StrCat("node ", node->index, ": ");
    if (node->refs != count.refs) {
      Broken(absl::StrCat(name, node->refs, " refs, not ", count.refs));
    }
    if (node->children != count.children) Broken(absl::StrCat(name, "children"));
    for (int g = 0; g < kMaxGroups; ++g) {
      if (node->windows[g].strong != count.windows[g].strong ||
          node->windows[g].weak != count.windows[g].weak) {
        Broken(absl::StrCat(name, "group ", g, " held by ", node->windows[g].strong, "+",
                            node->windows[g].weak, ", not ", count.windows[g].strong, "+",
                            count.windows[g].weak));
      }
    }
    if (node->parent == nullptr) continue;
    Count& parent = counts[node->parent];
    ++parent.children;
    if (count.refs > 0) ++parent.refs;
  }
}

void StoreAudit::CheckLeases(const std::vector<Node*>& nodes) UNLOCKED {
  struct Count {
    std::set<const Lease*> leases;
    int owners = 0, resident_children = 0;
  };
  absl::flat_hash_map<const Node*, Count> counts;
  for (const Claim* claim : AllClaims()) {
    const Lease* lease = claim->lease();
    const bool leased =
        claim->node()->layout->full_groups != 0 && claim->kind() != Claim::Kind::kTokens;
    if ((lease != nullptr) != leased) Broken("a lease too many or too few");
    if (lease == nullptr) continue;
    const bool strong = claim->kind() == Claim::Kind::kStrong;
    if (lease->end != claim->node() || lease->strong != strong) Broken("another claim's lease");
    const Node* tip = claim->node();
    while (!tip->has_full_kv()) tip = tip->parent;
    counts[tip].leases.insert(lease);
    if (strong) ++counts[tip].owners;
  }
  for (const Node* node : nodes) {
    if (!node->is_root() && node->has_full_kv()) ++counts[node->parent].resident_children;
  }
  for (const Node* node : nodes) {
    const Count& count = counts[node];
    std::set<const Lease*> leases;
    for (const Lease* lease = node->leases; lease != nullptr; lease = lease->next) {
      if (lease->tip != node) Broken("a lease with another tip");
      leases.insert(lease);
    }
    if (leases != count.leases || node->owners != count.owners ||
        node->resident_children != count.resident_children) {
      Broken(absl::StrCat("node ", node->index, ": ", leases.size(), " leases, ", node->owners,
                          " owners, ", node->resident_children, " resident children, not ",
                          count.leases.size(), ", ", count.owners, ", ", count.resident_children));
    }
  }
}

void StoreAudit::CheckNode(const Node* node) UNLOCKED {
  const std::string name = absl::StrCat("node ", node->index, ": ");
  if (node->is_root()) return;
  if (node->tokens.empty()) Broken(absl::StrCat(name, "no tokens"));
  if (!node->full() && node->children > 0) Broken(absl::StrCat(name, "cut short, with children"));
  if (node->refs == 0 && node->children == 0 && node->resident == 0) {
    Broken(absl::StrCat(name, "nothing needs it"));
  }
  const bool may_forget = node->layout->keep_nodes > 0 && node->parent == node->sinks;
  if (node->index != node->parent->index + 1 && !may_forget) Broken(absl::StrCat(name, "index"));
  const Node* ancestor = node->parent;
  while (ancestor->index > node->jump->index) ancestor = ancestor->parent;
  if (ancestor != node->jump) Broken(absl::StrCat(name, "jumps to another chain"));
  const uint32_t full = node->layout->full_groups;
  if ((node->resident & full) != 0 && !node->parent->is_root() &&
      (node->parent->whole() & full) == 0) {
    Broken(absl::StrCat(name, "KV behind a gap"));
  }
  for (size_t g = 0; g < node->layout->groups.size(); ++g) {
    const bool resident = (node->resident >> g & 1) != 0;
    for (int layer : node->layout->groups[g].layers) {
      const bool has = !node->pages.empty() && static_cast<bool>(node->pages[layer]);
      if (has != resident) Broken(absl::StrCat(name, "pages of group ", g));
    }
    if ((node->rows[g] > 0) != resident || node->rows[g] > static_cast<int>(node->tokens.size())) {
      Broken(absl::StrCat(name, node->rows[g], " rows of group ", g));
    }
    const Node::Holds& holds = node->windows[g];
    if (resident && !node->layout->groups[g].full() && holds.strong == 0 && holds.weak == 0) {
      Broken(absl::StrCat(name, "a windowed page that no one holds"));
    }
  }
}

void StoreAudit::CheckPages(const std::vector<Node*>& nodes) UNLOCKED {
  struct Page {
    bool held = false;
    bool pinned = false;
    bool busy = false;
    int owners = 0;
    size_t last_owner = 0;  // its number from 1 on
  };
  std::vector<Page> pages(state_->options.pages);
  const auto at = [&](const PageRef& page) -> Page& {
    return pages[static_cast<size_t>(page.id())];
  };
  for (const Node* node : nodes) {
    for (const PageRef& page : node->pages) {
      if (page && std::exchange(at(page).held, true)) Broken("a page in two places");
    }
  }
  const std::vector<Owner> owners = Owners();
  for (size_t i = 0; i < owners.size(); ++i) {
    const auto own = [&](Page& page) {
      if (std::exchange(page.last_owner, i + 1) != i + 1) ++page.owners;
      page.pinned |= owners[i].pinned;
      page.busy |= owners[i].busy || owners[i].pinned;
    };
    for (base::PageId id : owners[i].pages) {
      Page& page = pages[static_cast<size_t>(id)];
      // A page that a branch still writes is nobody else's.
      if (std::exchange(page.held, true)) Broken("a writable page in two places");
      own(page);
    }
    for (base::PageId id : owners[i].heavy) {
      pages[static_cast<size_t>(id)].held = true;
      own(pages[static_cast<size_t>(id)]);
    }
    for (const Claim* claim : owners[i].claims) {
      for (const Node* node = claim->node(); !node->is_root(); node = node->parent) {
        for (int layer = 0; layer < node->layout->layers && !node->pages.empty(); ++layer) {
          const LayerGroup& group = node->layout->groups[node->layout->group_of_layer[layer]];
          if (node->pages[layer] && InReach(*claim, node, group)) own(at(node->pages[layer]));
        }
      }
    }
  }
  PageCounts want = {.total = state_->options.pages};
  int64_t busy = 0;
  for (const Page& page : pages) {
    if (page.busy) ++busy;
    ++(!page.held         ? want.free
       : page.pinned      ? want.pinned
       : page.owners > 1  ? want.shared
       : page.owners == 1 ? want.private_pages
                          : want.cached);
  }
  want.quarantined = state_->pool.quarantined();
  want.free -= want.quarantined;
  const PageCounts counts = state_->CountPages();
  if (counts.free + counts.cached + counts.private_pages + counts.shared + counts.pinned +
          counts.quarantined !=
      counts.total) {
    Broken("page states do not sum to the pool");
  }
  const auto text = [](const PageCounts& c) {
    return absl::StrCat("free ", c.free, " cached ", c.cached, " private ", c.private_pages,
                        " shared ", c.shared, " pinned ", c.pinned, " quarantined ", c.quarantined);
  };
  if (state_->dead.empty() && state_->tree.retired_.empty() && text(counts) != text(want)) {
    Broken(absl::StrCat(text(counts), ", not ", text(want)));
  }
  if (!state_->options.quota_pages.empty()) return CheckQuotas(owners);
  const int64_t obtainable = state_->Obtainable("");
  if (obtainable != want.total - busy) {
    Broken(absl::StrCat(obtainable, " obtainable, not ", want.total - busy));
  }
}

void StoreAudit::CheckLoose(const std::vector<Node*>& nodes) UNLOCKED {
  NodeTree& tree = state_->tree;
  std::set<const Node*> cached, kept;
  int64_t pages = 0;
  absl::flat_hash_map<const Node*, uint32_t> owned;  // bit g: in group g
  for (const Claim* claim : AllClaims()) {
    if (claim->kind() != Claim::Kind::kStrong) continue;
    const std::vector<LayerGroup>& groups = claim->node()->layout->groups;
    for (const Node* node = claim->node(); !node->is_root(); node = node->parent) {
      for (size_t g = 0; g < groups.size(); ++g) {
        if (InReach(*claim, node, groups[g])) owned[node] |= 1u << g;
      }
    }
  }
  for (const Node* node : nodes) {
    int64_t loose = 0;
    for (size_t g = 0; g < node->layout->groups.size(); ++g) {
      const LayerGroup& group = node->layout->groups[g];
      if ((node->resident >> g & 1) == 0) continue;
      bool needed = (owned[node] >> g & 1) != 0;
      for (const Node* child = node->first_child; group.full() && child != nullptr;
           child = child->next_sibling) {
        needed |= child->has_full_kv();
      }
      if (!needed) loose += static_cast<int64_t>(group.layers.size());
    }
    pages += loose;
    if (loose > 0) (node->refs > 0 ? kept : cached).insert(node);
  }
  if (pages != tree.loose_pages()) {
    Broken(absl::StrCat(tree.loose_pages(), " loose pages, not ", pages));
  }
  const auto check = [&](const NodeTree::LooseList& list, const std::set<const Node*>& want) {
    std::set<const Node*> listed;
    int64_t last_use = -1;
    for (const Node* node = list.oldest; node != nullptr; node = node->loose_next) {
      if (node->last_use < last_use) Broken("loose nodes out of order");
      last_use = node->last_use;
      listed.insert(node);
    }
    if (listed != want) Broken(absl::StrCat(listed.size(), " loose nodes, not ", want.size()));
  };
  check(tree.cached_, cached);
  check(tree.kept_, kept);
}

std::vector<std::string> StoreAudit::Check() UNLOCKED {
  broken_.clear();
  const std::vector<Node*> nodes = AllNodes();
  if (static_cast<int64_t>(nodes.size() - state_->tree.roots_.size()) !=
      state_->tree.node_count()) {
    Broken("node count");
  }
  for (const Node* node : nodes) CheckNode(node);
  CheckCounts(nodes);
  CheckLeases(nodes);
  CheckLoose(nodes);
  CheckIndex(nodes);
  CheckSessions();
  CheckForgetting();
  CheckPages(nodes);
  return broken_;
}

std::vector<Node*> StoreAudit::ResidentNodes() UNLOCKED {
  std::vector<Node*> nodes = AllNodes();
  nodes.erase(std::remove_if(nodes.begin(), nodes.end(),
                             [](const Node* node) { return node->resident == 0; }),
              nodes.end());
  return nodes;
}

void StoreAudit::ReadTokens(Node* node, int64_t end, std::vector<int32_t>* out) UNLOCKED {
  state_->tree.ReadTokens(node, 0, end, out);
}

std::unique_ptr<base::MutexLock> StoreAudit::Lock() UNLOCKED {
  return std::make_unique<base::MutexLock>(&state_->mu);
}

Node* StoreAudit::BaseNode(const Branch& branch) { return branch.state_->base().claim.node(); }

int64_t StoreAudit::nodes() UNLOCKED { return state_->tree.node_count(); }

int64_t StoreAudit::touched() UNLOCKED { return state_->tree.touched(); }

int64_t StoreAudit::HeadPages(absl::string_view principal, absl::string_view id,
                              int layer) UNLOCKED {
  const auto session = state_->Find(principal, id);
  int64_t pages = 0;
  const Claim& claim = session->versions.back().claim;
  for (const Node* node = claim.node(); !node->is_root(); node = node->parent) {
    const LayerGroup& group = node->layout->groups[node->layout->group_of_layer[layer]];
    if (!node->pages.empty() && node->pages[layer] && Reaches(claim, node, group)) ++pages;
  }
  return pages;
}

}  // namespace tokend::kv
