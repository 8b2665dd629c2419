#include "core/kv/store_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/kv/branch_state.h"
#include "core/kv/errors.h"

namespace tokend::kv {
namespace {

// Nodes that are let go of before another thread gets its turn.
constexpr int64_t kDrainPiece = 4096;

std::vector<int64_t> LocalWindows(const StoreOptions& options) {
  if (!options.local_windows.empty()) return options.local_windows;
  return std::vector<int64_t>(static_cast<size_t>(options.layers), 0);
}

}  // namespace

StoreState::StoreState(const StoreOptions& store_options, ops::Backend* store_backend,
                       base::Clock* store_clock, base::Observer* store_observer)
    : options(store_options),
      backend(store_backend),
      clock(store_clock),
      observer(store_observer),
      namer(store_options),
      pool(store_options.layers, store_options.pages, store_options.hooks),
      tree(&pool, LocalWindows(store_options), store_options.page_tokens,
           store_options.digest_bits) {}

StoreState::~StoreState() {
  base::MutexLock lock(&mu);
  TOKEND_CHECK(branches.empty());
  while (!sessions.empty()) {
    const std::shared_ptr<Session> session = sessions.begin()->second;
    RemoveSession(session.get());
  }
  while (DrainPiece()) {
  }
}

std::shared_ptr<Session> StoreState::Find(absl::string_view principal, absl::string_view id) {
  const auto found = sessions.find({std::string(principal), std::string(id)});
  if (found == sessions.end() || found->second->reserved) return nullptr;
  return found->second;
}

absl::StatusOr<std::shared_ptr<Session>> StoreState::AddSession(absl::string_view principal,
                                                                absl::string_view id,
                                                                const SessionSpec& spec) {
  const SessionKey key = {std::string(principal), id.empty() ? RandomId(8) : std::string(id)};
  if (sessions.count(key) > 0) return SessionExists(id);
  if (static_cast<int>(sessions.size()) >= options.max_sessions) {
    return SessionLimit(options.max_sessions);
  }
  TOKEND_RETURN_IF_ERROR(CheckPinQuota(principal, spec));
  TOKEND_RETURN_IF_ERROR(Fault(FaultPoint::kAddSession));
  auto session = std::make_shared<Session>();
  session->principal = key.first;
  session->id = key.second;
  session->uid = RandomId(16);
  session->spec = spec;
  if (spec.history_tokens > 0) session->chain = session->uid;
  if (!spec.idle_ttl) session->spec.idle_ttl = options.default_idle_ttl;
  session->create_time = session->update_time = clock->Now();
  session->last_use = clock->Monotonic();
  if (session->spec.idle_ttl) {
    next_expiry_ = std::min(next_expiry_, session->last_use + *session->spec.idle_ttl);
  }
  sessions[key] = session;
  return session;
}

absl::StatusOr<std::shared_ptr<Session>> StoreState::AddFork(const Session& source,
                                                             absl::string_view id) {
  SessionSpec spec = source.spec;
  spec.pinned = false;
  TOKEND_ASSIGN_OR_RETURN(std::shared_ptr<Session> fork, AddSession(source.principal, id, spec));
  fork->chain = source.chain;
  fork->forget_at = source.forget_at;
  return fork;
}

absl::Status StoreState::Fault(FaultPoint point) const {
  return options.hooks == nullptr ? absl::OkStatus() : options.hooks->Fault(point);
}

void StoreState::RemoveSession(Session* session) {
  session->deleted = true;
  for (VersionRecord& version : session->versions) dead.push_back(std::move(version.claim));
  session->versions.clear();
  grown.erase(session);
  sessions.erase({session->principal, session->id});
}

void StoreState::AddVersion(Session* session, VersionRecord record) {
  if (!session->versions.empty()) {
    tree.Change(&session->versions.back().claim, Claim::Kind::kWeak);
  }
  record.create_time = clock->Now();
  session->versions.push_back(std::move(record));
  while (static_cast<int>(session->versions.size()) > options.max_versions) {
    dead.push_back(std::move(session->versions.front().claim));
    session->versions.pop_front();
  }
  session->update_time = session->versions.back().create_time;
  session->last_use = clock->Monotonic();
  if (!session->chain.empty() && session->tokens() >= session->forget_at) grown.insert(session);
}

absl::StatusOr<const VersionRecord*> StoreState::FindVersion(const Session& session,
                                                             std::optional<int64_t> version) const {
  if (!version) return session.versions.empty() ? nullptr : &session.versions.back();
  for (const VersionRecord& record : session.versions) {
    if (static_cast<int64_t>(record.number) == *version) return &record;
  }
  if (session.versions.empty() || *version > static_cast<int64_t>(session.head()) || *version < 1) {
    return VersionNotFound(session.id, *version);
  }
  return VersionNotRetained(session.id, *version, session.versions.front().number);
}

absl::Status StoreState::CheckExpected(const Session& session,
                                       std::optional<int64_t> expected) const {
  if (!expected || *expected == static_cast<int64_t>(session.head())) return absl::OkStatus();
  observer->OnVersionConflict();
  return VersionMismatch(*expected, session.head());
}

SessionInfo StoreState::Info(const Session& session) const {
  SessionInfo info = {.id = session.id,
                      .uid = session.uid,
                      .spec = session.spec,
                      .head = session.head(),
                      .tokens = session.tokens(),
                      .active_turns = static_cast<int32_t>(session.line.size()),
                      .forked_from = session.forked_from,
                      .create_time = session.create_time,
                      .update_time = session.update_time};
  if (!session.versions.empty()) {
    const Claim& claim = session.versions.back().claim;
    info.first_position = tree.FirstPosition(claim.node());
    info.resident_tokens = tree.ResidentRows(claim, info.tokens);
  }
  return info;
}

Node* StoreState::Root(const Session& session) {
  const SessionSpec& spec = session.spec;
  const std::string key = namer.Key(session.principal, spec.retention, session.chain);
  return tree.Root(key, RootNamer::Digest(key), spec.retention,
                   {.tokens = spec.history_tokens, .look_back = options.look_back_tokens});
}

Node* StoreState::Root(absl::string_view principal) {
  const std::string key = namer.Key(principal, {}, "");
  return tree.Root(key, RootNamer::Digest(key), {}, {});
}

Claim StoreState::TakeCut(const VersionRecord& version, int64_t end) {
  const int64_t index = (end + options.page_tokens - 1) / options.page_tokens - 1;
  Node* node = tree.Ancestor(version.claim.node(), index);
  return tree.Take(node, std::min(version.computed, end), Claim::Kind::kStrong, &version.claim);
}

void StoreState::Drain() {
  bool more = true;
  while (more) {
    base::MutexLock lock(&mu);
    more = DrainPiece();
  }
}

bool StoreState::DrainPiece() {
  for (Claim& claim : dead) tree.Drop(std::move(claim));
  dead.clear();
  return tree.Drain(kDrainPiece);
}

void StoreState::DeleteIdle() {
  base::MutexLock lock(&mu);
  const absl::Duration now = clock->Monotonic();
  if (now < next_expiry_) return;
  next_expiry_ = absl::InfiniteDuration();
  std::vector<std::shared_ptr<Session>> expired;
  for (const auto& [key, session] : sessions) {
    if (!session->spec.idle_ttl) continue;
    const absl::Duration expiry =
        (session->in_use() ? now : session->last_use) + *session->spec.idle_ttl;
    if (expiry <= now) {
      expired.push_back(session);
    } else {
      next_expiry_ = std::min(next_expiry_, expiry);
    }
  }
  for (const std::shared_ptr<Session>& session : expired) RemoveSession(session.get());
}

int64_t StoreState::Obtainable(absl::string_view principal) {
  DrainPiece();
  std::vector<NodeTree::Claimant> claims;
  for (const Session* session : Kept(principal)) {
    claims.push_back({&session->versions.back().claim});
  }
  for (const BranchState* branch : branches) {
    for (const Claim* claim : branch->claims()) claims.push_back({claim});
  }
  const NodeTree::Owned owned = tree.Count({}, claims, {});
  return pool.total() - owned.once - owned.shared - branch_pages;
}

std::optional<base::EvictionCause> StoreState::RetireIdle(absl::string_view principal,
                                                          const std::set<const Session*>& kept) {
  Session* oldest = nullptr;
  const auto above_quota = [&](const Session& session) {
    return session.principal != principal && Quota(session.principal).has_value();
  };
  const auto order = [&](const Session& session) {
    return std::pair(!above_quota(session), session.retire_order());
  };
  for (const auto& [key, session] : sessions) {
    if (!session->holds_kv() || kept.count(session.get()) > 0) continue;
    if (oldest == nullptr || order(*session) < order(*oldest)) oldest = session.get();
  }
  if (oldest == nullptr) return std::nullopt;
  tree.Change(&oldest->versions.back().claim, Claim::Kind::kWeak);
  if (above_quota(*oldest)) return base::EvictionCause::kQuota;
  return oldest->live_branches > 0 ? base::EvictionCause::kPressure : base::EvictionCause::kIdle;
}

void StoreState::GiveUpHead(Session* session) {
  if (session == nullptr || session->spec.pinned || !session->holds_kv()) return;
  tree.Change(&session->versions.back().claim, Claim::Kind::kWeak);
  tree.Drain(0);
}

absl::Status StoreState::MakeRoom(int64_t pages, absl::string_view principal) {
  if (pages <= pool.free()) return absl::OkStatus();
  // What is given up would be quarantined.
  TOKEND_CHECK(!pool.step_in_flight());
  DrainPiece();
  if (pages > pool.free() + tree.loose_pages() && pages > Obtainable(principal)) {
    return PoolFull(pages, pool.total());
  }
  int64_t before = pool.free();
  bool enough = tree.Evict(pages);
  observer->OnEvictedPages(base::EvictionCause::kPressure, pool.free() - before);
  if (enough) return absl::OkStatus();
  const std::set<const Session*> kept = Kept(principal);
  while (!enough) {
    before = pool.free();
    const std::optional<base::EvictionCause> cause = RetireIdle(principal, kept);
    TOKEND_CHECK(cause.has_value());
    enough = tree.Evict(pages);
    if (pool.free() > before) observer->OnEvictedPages(*cause, pool.free() - before);
  }
  return absl::OkStatus();
}

PageCounts StoreState::CountPages() {
  std::vector<const Claim*> pinned;
  std::vector<NodeTree::Claimant> others;
  for (const auto& [key, session] : sessions) {
    if (session->versions.empty()) continue;
    const Claim* const head = &session->versions.back().claim;
    if (session->spec.pinned) {
      pinned.push_back(head);
    } else {
      others.push_back({head});
    }
  }
  for (const BranchState* branch : branches) {
    others.push_back({&branch->widest_claim(), branch->sinks_claim()});
  }
  // A claim that is about to go owns until then.
  const NodeTree::Owned owned = tree.Count(pinned, others, dead);
  PageCounts counts = {.total = pool.total(),
                       .free = pool.free(),
                       .private_pages = owned.once + branch_pages,
                       .shared = owned.shared,
                       .pinned = owned.pinned,
                       .quarantined = pool.quarantined()};
  counts.cached =
      counts.total - pool.unowned() - counts.private_pages - counts.shared - counts.pinned;
  return counts;
}

absl::Status CheckRetention(const RetentionPolicy& policy, const StoreOptions& options) {
  TOKEND_RETURN_IF_ERROR(
      ValidateRetention(policy, options.context_tokens, options.layers, options.page_tokens));
  const bool local = std::any_of(options.local_windows.begin(), options.local_windows.end(),
                                 [](int64_t window) { return window > 0; });
  if (policy.kind != RetentionPolicy::Kind::kHeavyHitters) return absl::OkStatus();
  if (!options.heavy_hitters) {
    return base::FeatureUnavailable(
        "heavy_hitters", "session.retention.heavy_hitters: not on this device, only on the CPU");
  }
  if (!local) return absl::OkStatus();
  return base::FeatureUnavailable(
      "heavy_hitters", "session.retention.heavy_hitters: the model has layers with own windows");
}

Conversation CutConversation(const Conversation& conversation, int64_t end) {
  if (conversation == nullptr || conversation->empty() || conversation->back().end <= end) {
    return conversation;
  }
  auto left = std::make_shared<std::vector<ChatMessage>>();
  for (const ChatMessage& message : *conversation) {
    if (message.begin >= end) break;
    left->push_back(message);
  }
  if (!left->empty() && left->back().end > end) {
    left->back().end = end;
    left->back().closed = true;
    left->back().cut = true;
  }
  return left;
}

}  // namespace tokend::kv
