// Who may have whose pages: pins, and what a principal holds within its quota.
#include <algorithm>
#include <tuple>

#include "core/base/check.h"
#include "core/kv/branch_state.h"
#include "core/kv/errors.h"
#include "core/kv/session_store.h"
#include "core/kv/store_state.h"

namespace tokend::kv {

std::optional<int64_t> StoreState::Quota(absl::string_view principal) const {
  const auto quota = options.quota_pages.find(std::string(principal));
  if (quota == options.quota_pages.end()) return std::nullopt;
  return quota->second;
}

int64_t StoreState::CountHeads(absl::Span<const Session* const> held,
                               absl::Span<const Session* const> more) {
  std::vector<NodeTree::Claimant> claims;
  for (const Session* session : held) claims.push_back({&session->versions.back().claim});
  for (const Session* session : more) claims.push_back({&session->versions.back().claim});
  if (claims.empty()) return 0;
  const NodeTree::Owned owned = tree.Count({}, claims, {});
  return owned.once + owned.shared;
}

std::vector<const Session*> StoreState::Held(absl::string_view principal) {
  std::vector<const Session*> all;
  for (auto at = sessions.lower_bound({std::string(principal), ""}); at != sessions.end(); ++at) {
    if (at->first.first != principal) break;
    const Session* const session = at->second.get();
    if (session->holds_kv()) all.push_back(session);
  }
  const auto later = [](const Session* a, const Session* b) {
    return std::tuple(a->spec.pinned, a->retire_order()) >
           std::tuple(b->spec.pinned, b->retire_order());
  };
  std::sort(all.begin(), all.end(), later);
  const int64_t quota = *Quota(principal);
  std::vector<const Session*> held;
  for (absl::Span<const Session* const> left = all; !left.empty();) {
    // As many of the next as fit together; the one behind them does not.
    size_t low = 0, high = 1;
    while (high <= left.size() && CountHeads(held, left.first(high)) <= quota)
      low = high, high *= 2;
    high = std::min(high, left.size() + 1);
    while (low + 1 < high) {
      const size_t middle = low + (high - low) / 2;
      (CountHeads(held, left.first(middle)) <= quota ? low : high) = middle;
    }
    held.insert(held.end(), left.begin(), left.begin() + low);
    left.remove_prefix(std::min(left.size(), low + 1));
  }
  return held;
}

std::vector<const Session*> StoreState::Protected(absl::string_view principal) {
  std::vector<const Session*> all;
  for (const auto& [holder, quota] : options.quota_pages) {
    if (holder == principal) continue;
    const std::vector<const Session*> held = Held(holder);
    all.insert(all.end(), held.begin(), held.end());
  }
  return all;
}

std::set<const Session*> StoreState::Kept(absl::string_view principal) {
  const std::vector<const Session*> others = Protected(principal);
  std::set<const Session*> kept(others.begin(), others.end());
  for (const auto& [key, session] : sessions) {
    if (!session->versions.empty() && session->spec.pinned) kept.insert(session.get());
  }
  return kept;
}

int64_t StoreState::PinGrowth(const Session& session) {
  if (session.pin_reserved == 0) return 0;
  const Session* const one = &session;
  const int64_t now = session.versions.empty() ? 0 : CountHeads({&one, 1});
  return std::max<int64_t>(0, session.pin_reserved - now);
}

int64_t StoreState::PinnedPages(absl::string_view principal, const Session* except) {
  std::vector<const Session*> pinned;
  int64_t growth = 0;
  for (auto at = sessions.lower_bound({std::string(principal), ""}); at != sessions.end(); ++at) {
    const Session* const session = at->second.get();
    if (session->principal != principal) break;
    if (session == except || !session->spec.pinned) continue;
    if (!session->versions.empty()) pinned.push_back(session);
    growth += PinGrowth(*session);
  }
  return CountHeads(pinned) + growth;
}

absl::Status StoreState::CheckPinQuota(absl::string_view principal, const SessionSpec& spec) {
  const std::optional<int64_t> quota = Quota(principal);
  if (!spec.pinned || !quota) return absl::OkStatus();
  // Its first token takes a page of each layer.
  const int64_t needed = PinnedPages(principal, nullptr) + options.layers;
  return needed <= *quota ? absl::OkStatus() : QuotaExceeded(principal, needed, *quota);
}

absl::Status StoreState::CheckRollback(const Session& session, const VersionRecord& target) {
  if (!session.spec.pinned) return absl::OkStatus();
  Claim claim = TakeCut(target, target.tokens);
  absl::Status status = CheckPin(session, claim);
  dead.push_back(std::move(claim));
  return status;
}

absl::Status StoreState::CheckPin(const Session& session, const Claim& target) {
  if (const std::optional<int64_t> quota = Quota(session.principal)) {
    const NodeTree::Claimant claims[] = {{&target}};
    const NodeTree::Owned owned = tree.Count({}, claims, {});
    const int64_t needed = PinnedPages(session.principal, &session) + owned.once + owned.shared;
    if (needed > *quota) return QuotaExceeded(session.principal, needed, *quota);
  }
  for (const BranchState* branch : branches) {
    if (branch->most_pages() == 0) continue;
    const int64_t left = PagesLeft(*branch, &session, &target);
    if (left < branch->most_pages() && left < PagesLeft(*branch, nullptr, nullptr)) {
      return PinTakesTooMuch();
    }
  }
  return absl::OkStatus();
}

int64_t StoreState::PagesLeft(const BranchState& branch, const Session* changed,
                              const Claim* target) {
  // What it has beside a turn that commits to it counts with the turn.
  const Session* const own = branch.base().forks ? nullptr : branch.base().session.get();
  std::set<const Session*> fixed;
  int64_t growth = 0;
  for (const auto& [key, session] : sessions) {
    if (session.get() == own || session.get() == changed || !session->spec.pinned) continue;
    if (!session->versions.empty()) fixed.insert(session.get());
    growth += PinGrowth(*session);
  }
  for (const Session* session : Protected(branch.base().principal)) fixed.insert(session);
  fixed.erase(changed);
  std::vector<NodeTree::Claimant> claims;
  for (const Session* session : fixed) claims.push_back({&session->versions.back().claim});
  if (target != nullptr) claims.push_back({target});
  // What the branch's base shares with them is no loss to it.
  const Claim* const shared[] = {&branch.widest_claim()};
  const NodeTree::Owned owned = tree.Count(shared, claims, {});
  return pool.total() - growth - owned.once - owned.shared;
}

TurnRoom StoreState::RoomFor(const BranchState& branch, const Session* commits_to) {
  TurnRoom room = {.total_pages = pool.total(), .pages = PagesLeft(branch, nullptr, nullptr)};
  if (commits_to == nullptr || !commits_to->spec.pinned) return room;
  room.quota_pages = Quota(commits_to->principal);
  if (room.quota_pages) {
    room.pin_pages = *room.quota_pages - PinnedPages(commits_to->principal, commits_to);
  }
  return room;
}

absl::Status StoreState::Reserve(BranchState* branch, Session* commits_to, const TurnRoom& room,
                                 int64_t pages, int64_t pin_pages) {
  if (PagesLeft(*branch, nullptr, nullptr) < std::min(pages, room.pages)) {
    return PoolFull(pages, pool.total());
  }
  if (commits_to != nullptr && commits_to->spec.pinned) {
    const int64_t now = commits_to->versions.empty() ? 0 : CountHeads({&commits_to, 1});
    for (const BranchState* other : branches) {
      if (other == branch || other->most_pages() == 0 || pin_pages <= now) continue;
      const int64_t left = PagesLeft(*other, nullptr, nullptr) - (pin_pages - now);
      if (left < other->most_pages()) return PinTakesTooMuch();
    }
    commits_to->pin_reserved = pin_pages;
  }
  branch->SetMostPages(pages);
  return absl::OkStatus();
}

Session* SessionStore::Target(const Writer* writer) {
  if (writer == nullptr || writer->state_->fork != nullptr) return nullptr;
  return writer->state_->session.get();
}

TurnRoom SessionStore::RoomFor(const Branch& branch, const Writer* writer) {
  base::MutexLock lock(&state_->mu);
  return state_->RoomFor(*branch.state_, Target(writer));
}

absl::Status SessionStore::Reserve(Branch* branch, const Writer* writer, const TurnRoom& room,
                                   int64_t pages, int64_t pin_pages) {
  base::MutexLock lock(&state_->mu);
  return state_->Reserve(branch->state_.get(), Target(writer), room, pages, pin_pages);
}

}  // namespace tokend::kv
