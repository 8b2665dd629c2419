// StoreAudit: what quotas keep from whom.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/kv/branch_state.h"
#include "tests/core/kv/store_audit.h"

// As in store_audit.cc.
#define UNLOCKED ABSL_NO_THREAD_SAFETY_ANALYSIS

namespace tokend::kv {

void StoreAudit::AddHeavy(const Claim& claim, std::vector<base::PageId>* pages) {
  if (claim.heavy() == nullptr) return;
  for (const HeavySet::Layer& layer : claim.heavy()->layers) {
    for (const auto& ref : layer.refs) pages->push_back(ref.id());
  }
}

void StoreAudit::AddPages(const Claim& claim, std::set<base::PageId>* pages) const UNLOCKED {
  std::vector<base::PageId> heavy;
  AddHeavy(claim, &heavy);
  pages->insert(heavy.begin(), heavy.end());
  for (const Node* node = claim.node(); !node->is_root(); node = node->parent) {
    for (int layer = 0; layer < node->layout->layers && !node->pages.empty(); ++layer) {
      const LayerGroup& group = node->layout->groups[node->layout->group_of_layer[layer]];
      if (node->pages[layer] && InReach(claim, node, group)) {
        pages->insert(node->pages[layer].id());
      }
    }
  }
}

int64_t StoreAudit::PinnedPages(absl::string_view principal, absl::string_view except) UNLOCKED {
  std::set<base::PageId> pages;
  for (const auto& [key, session] : state_->sessions) {
    if (key.first != principal || key.second == except || !session->spec.pinned) continue;
    if (!session->versions.empty()) AddPages(session->versions.back().claim, &pages);
  }
  return static_cast<int64_t>(pages.size());
}

int64_t StoreAudit::VersionPages(absl::string_view principal, absl::string_view id,
                                 int64_t version) UNLOCKED {
  std::set<base::PageId> pages;
  for (const VersionRecord& record : state_->Find(principal, id)->versions) {
    if (static_cast<int64_t>(record.number) == version) AddPages(record.claim, &pages);
  }
  return static_cast<int64_t>(pages.size());
}

void StoreAudit::CheckQuotas(const std::vector<Owner>& owners) UNLOCKED {
  std::vector<std::set<base::PageId>> owned;
  for (const Owner& owner : owners) {
    std::set<base::PageId>& pages = owned.emplace_back(owner.pages.begin(), owner.pages.end());
    for (const Claim* claim : owner.claims) AddPages(*claim, &pages);
  }
  std::set<std::string> principals = {""};
  for (const auto& [principal, quota] : state_->options.quota_pages) principals.insert(principal);
  for (const std::string& principal : principals) {
    const int64_t obtainable = state_->Obtainable(principal);
    const auto kept = static_cast<int64_t>(KeptFrom(principal, owners, owned).size());
    if (obtainable != state_->options.pages - kept) {
      Broken(absl::StrCat(obtainable, " obtainable for '", principal, "', not ",
                          state_->options.pages - kept));
    }
  }
}

std::set<base::PageId> StoreAudit::KeptFrom(
    const std::string& principal, const std::vector<Owner>& owners,
    const std::vector<std::set<base::PageId>>& owned) UNLOCKED {
  std::set<base::PageId> kept;
  for (size_t i = 0; i < owners.size(); ++i) {
    if (owners[i].busy || owners[i].pinned) kept.insert(owned[i].begin(), owned[i].end());
  }
  for (const auto& [holder, quota] : state_->options.quota_pages) {
    if (holder == principal) continue;
    // Its heads, last the one that is given up first, but for those that are too
    // large beside the ones before.
    std::vector<size_t> held;
    for (size_t i = 0; i < owners.size(); ++i) {
      const Session* session = owners[i].session;
      if (session != nullptr && session->principal == holder) held.push_back(i);
    }
    std::sort(held.begin(), held.end(), [&](size_t a, size_t b) {
      const auto order = [&](size_t i) {
        return std::tuple(owners[i].pinned, owners[i].runs, !owners[i].session->line.empty(),
                          owners[i].session->last_use);
      };
      return order(a) > order(b);
    });
    std::set<base::PageId> within;
    for (const size_t i : held) {
      std::set<base::PageId> all = within;
      all.insert(owned[i].begin(), owned[i].end());
      if (static_cast<int64_t>(all.size()) <= quota) within = std::move(all);
    }
    kept.insert(within.begin(), within.end());
  }
  return kept;
}

}  // namespace tokend::kv
