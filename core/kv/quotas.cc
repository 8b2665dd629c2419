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

int64_t StoreState::CountHeads(absl::Span<const Session* const> held, const Claim* without) {
  if (held.empty()) return 0;
  std::vector<const Claim*> first;
  std::vector<NodeTree::Claimant> claims;
  if (without != nullptr) first.push_back(without);
  for (const Session* session : held) claims.push_back({&session->versions.back().claim});
  const NodeTree::Owned owned = tree.Count(first, claims, {});
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
    return std::tuple(a->keeps_kv(), a->retire_order()) >
           std::tuple(b->keeps_kv(), b->retire_order());
  };
  std::sort(all.begin(), all.end(), later);
  const int64_t quota = *Quota(principal);
  std::vector<const Session*> held;
  for (size_t next = 0; next < all.size();) {
    const auto fits = [&](size_t count) {
      std::vector<const Session*> more = held;
      more.insert(more.end(), all.begin() + next, all.begin() + next + count);
      return CountHeads(more) <= quota;
    };
    // As many of the next as fit together; the one behind them does not.
    const size_t left = all.size() - next;
    size_t low = 0, high = 1;
    while (high <= left && fits(high)) low = high, high *= 2;
    high = std::min(high, left + 1);
    while (low + 1 < high) {
      const size_t middle = low + (high - low) / 2;
      (fits(middle) ? low : high) = middle;
    }
    held.insert(held.end(), all.begin() + next, all.begin() + next + low);
    next += low + 1;
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
    if (!session->versions.empty() && session->keeps_kv()) kept.insert(session.get());
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
  const std::optional<int64_t> quota = Quota(session.principal);
  if (!session.spec.pinned || !quota) return absl::OkStatus();
  Claim claim = TakeCut(target, target.tokens);
  const NodeTree::Claimant claims[] = {{&claim}};
  const NodeTree::Owned owned = tree.Count({}, claims, {});
  dead.push_back(std::move(claim));
  const int64_t needed = PinnedPages(session.principal, &session) + owned.once + owned.shared;
  return needed <= *quota ? absl::OkStatus() : QuotaExceeded(session.principal, needed, *quota);
}

TurnRoom StoreState::RoomFor(const BranchState& branch, const Session* commits_to) {
  const Session* const own = branch.base().session.get();
  std::set<const Session*> fixed;
  int64_t growth = 0;
  for (const auto& [key, session] : sessions) {
    if (session.get() == own || !session->spec.pinned) continue;
    if (!session->versions.empty()) fixed.insert(session.get());
    growth += PinGrowth(*session);
  }
  for (const Session* session : Protected(branch.base().principal)) fixed.insert(session);
  fixed.erase(own);
  const std::vector<const Session*> claims(fixed.begin(), fixed.end());
  TurnRoom room = {.total_pages = pool.total()};
  // What the branch's base shares with them is no loss to it.
  room.pages = pool.total() - growth - CountHeads(claims, &branch.widest_claim());
  if (commits_to == nullptr || !commits_to->spec.pinned) return room;
  room.pinned = true;
  room.pinned_pages = commits_to->versions.empty() ? 0 : CountHeads({&commits_to, 1});
  room.quota_pages = Quota(commits_to->principal);
  if (room.quota_pages) {
    room.pin_pages = *room.quota_pages - PinnedPages(commits_to->principal, commits_to);
  }
  return room;
}

TurnRoom SessionStore::RoomFor(const Branch& branch, const Writer* writer) {
  base::MutexLock lock(&state_->mu);
  const bool to_session = writer != nullptr && writer->state_->fork == nullptr;
  return state_->RoomFor(*branch.state_, to_session ? writer->state_->session.get() : nullptr);
}

void SessionStore::ReservePin(Writer* writer, int64_t pages) {
  base::MutexLock lock(&state_->mu);
  TOKEND_CHECK(writer->state_->fork == nullptr);
  writer->state_->session->pin_reserved = pages;
}

}  // namespace tokend::kv
