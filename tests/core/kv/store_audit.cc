#include "tests/core/kv/store_audit.h"

#include <algorithm>
#include <utility>

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
    Owner owner = {.pinned = session->spec.pinned};
    for (const BranchState* branch : state_->branches) {
      if (branch->base().session == session && !branch->parked()) owner.busy = true;
    }
    if ((session->live_branches > 0) != owner.busy) Broken("live branches");
    for (const VersionRecord& version : session->versions) {
      if (version.claim.kind() == Claim::Kind::kStrong) owner.claims.push_back(&version.claim);
    }
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
  if (at != node || node->is_root()) return false;
  if (group.full()) return true;
  const int64_t page = state_->options.page_tokens;
  const ops::AttentionMask& mask = group.mask;
  const int64_t oldest = claim.position() - mask.window_tokens + 1;
  // Windows that touch the sinks' last page count as one run from the start.
  const int64_t sinks_end = (mask.sink_tokens + page - 1) / page * page;
  if (oldest < sinks_end + page) return true;
  return node->index * page < mask.sink_tokens || (node->index + 1) * page > oldest;
}

void StoreAudit::CheckCounts(const std::vector<Node*>& nodes) UNLOCKED {
  struct Count {
    int refs = 0, children = 0;
    std::array<Node::Holds, kMaxGroups> windows = {};
  };
  std::map<const Node*, Count> counts;
  for (const Claim* claim : AllClaims()) {
    ++counts[claim->node()].refs;
    const bool strong = claim->kind() == Claim::Kind::kStrong;
    const Layout& layout = *claim->node()->layout;
    if (claim->kind() == Claim::Kind::kTokens) continue;
    for (const Node* node = claim->node(); !node->is_root(); node = node->parent) {
      for (size_t g = 0; g < layout.groups.size(); ++g) {
        if (layout.groups[g].full() || !Reaches(*claim, node, layout.groups[g])) continue;
        Node::Holds& holds = counts[node].windows[g];
        ++(strong ? holds.strong : holds.weak);
      }
    }
  }
  for (const Node* node : state_->tree.dropped_) ++counts[node].refs;
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    const Node* node = *at;
    const Count& count = counts[node];
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
  std::map<const Node*, Count> counts;
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
  if (node->index != node->parent->index + 1) Broken(absl::StrCat(name, "index"));
  if ((node->rows == 0) != (node->resident == 0) ||
      node->rows > static_cast<int>(node->tokens.size())) {
    Broken(absl::StrCat(name, node->rows, " rows"));
  }
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
    const Node::Holds& holds = node->windows[g];
    if (resident && !node->layout->groups[g].full() && holds.strong == 0 && holds.weak == 0) {
      Broken(absl::StrCat(name, "a windowed page that no one holds"));
    }
  }
}

void StoreAudit::CheckPages(const std::vector<Node*>& nodes) UNLOCKED {
  std::map<base::PageId, const Node*> holders;
  for (const Node* node : nodes) {
    for (const PageRef& page : node->pages) {
      if (page && !holders.emplace(page.id(), node).second) Broken("a page in two places");
    }
  }
  std::map<base::PageId, std::set<int>> owners_of;
  std::set<base::PageId> pinned, busy;
  const std::vector<Owner> owners = Owners();
  for (size_t i = 0; i < owners.size(); ++i) {
    std::set<base::PageId> owned(owners[i].pages.begin(), owners[i].pages.end());
    for (base::PageId page : owners[i].pages) {
      // A page that a branch still writes is nobody else's.
      if (!holders.emplace(page, nullptr).second) Broken("a writable page in two places");
    }
    for (const Claim* claim : owners[i].claims) {
      for (const Node* node = claim->node(); !node->is_root(); node = node->parent) {
        for (int layer = 0; layer < node->layout->layers && !node->pages.empty(); ++layer) {
          const LayerGroup& group = node->layout->groups[node->layout->group_of_layer[layer]];
          if (node->pages[layer] && Reaches(*claim, node, group)) {
            owned.insert(node->pages[layer].id());
          }
        }
      }
    }
    for (base::PageId page : owned) owners_of[page].insert(static_cast<int>(i));
    if (owners[i].pinned) pinned.insert(owned.begin(), owned.end());
    if (owners[i].busy || owners[i].pinned) busy.insert(owned.begin(), owned.end());
  }
  PageCounts want = {.total = state_->options.pages};
  want.free = want.total - static_cast<int64_t>(holders.size());
  for (const auto& [page, node] : holders) {
    const size_t count = owners_of[page].size();
    ++(pinned.count(page) > 0 ? want.pinned
       : count > 1            ? want.shared
       : count == 1           ? want.private_pages
                              : want.cached);
  }
  const PageCounts counts = state_->CountPages();
  if (counts.free + counts.cached + counts.private_pages + counts.shared + counts.pinned +
          counts.quarantined !=
      counts.total) {
    Broken("page states do not sum to the pool");
  }
  const auto text = [](const PageCounts& c) {
    return absl::StrCat("free ", c.free, " cached ", c.cached, " private ", c.private_pages,
                        " shared ", c.shared, " pinned ", c.pinned);
  };
  if (state_->dead.empty() && text(counts) != text(want)) {
    Broken(absl::StrCat(text(counts), ", not ", text(want)));
  }
  const int64_t obtainable = state_->Obtainable();
  if (obtainable != want.total - static_cast<int64_t>(busy.size())) {
    Broken(absl::StrCat(obtainable, " obtainable, not ", want.total - busy.size()));
  }
}

void StoreAudit::CheckLoose(const std::vector<Node*>& nodes) UNLOCKED {
  NodeTree& tree = state_->tree;
  std::set<const Node*> cached, kept;
  int64_t pages = 0;
  for (const Node* node : nodes) {
    int64_t loose = 0;
    for (size_t g = 0; g < node->layout->groups.size(); ++g) {
      const LayerGroup& group = node->layout->groups[g];
      if ((node->resident >> g & 1) == 0) continue;
      bool needed = false;
      for (const Claim* claim : AllClaims()) {
        needed |= claim->kind() == Claim::Kind::kStrong && Reaches(*claim, node, group);
      }
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

void StoreAudit::CheckIndex(const std::vector<Node*>& nodes) UNLOCKED {
  size_t full = 0;
  std::set<std::pair<const Node*, std::vector<int32_t>>> seen;
  for (const Node* node : nodes) {
    if (node->is_root() || !node->full()) continue;
    ++full;
    const std::vector<int32_t> tokens(node->tokens.begin(), node->tokens.end());
    if (!seen.emplace(node->parent, tokens).second) Broken("two nodes for the same tokens");
    if (state_->tree.FindChild(node->parent, tokens) != node) Broken("a node is not indexed");
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
  CheckPages(nodes);
  return broken_;
}

std::vector<StoreAudit::ResidentPage> StoreAudit::ResidentPages() UNLOCKED {
  std::vector<ResidentPage> pages;
  for (Node* node : AllNodes()) {
    if (node->resident == 0) continue;
    ResidentPage page = {.policy = node->layout->policy,
                         .first_position = node->index * state_->options.page_tokens,
                         .rows = node->rows};
    const int64_t end = page.first_position + static_cast<int64_t>(node->tokens.size());
    state_->tree.ReadTokens(node, 0, end, &page.tokens);
    for (int layer = 0; layer < node->layout->layers; ++layer) {
      if (!node->pages[layer]) continue;
      page.layer = layer;
      page.page = node->pages[layer].id();
      pages.push_back(page);
    }
  }
  return pages;
}

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
