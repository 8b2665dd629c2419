#include "core/kv/session_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/kv/errors.h"
#include "core/kv/store_state.h"

namespace tokend::kv {
namespace {

using base::MutexLock;
using base::SessionOp;

bool LocalWindowsAreGood(const StoreOptions& options) {
  const std::vector<int64_t>& windows = options.local_windows;
  if (windows.empty()) return true;
  const int64_t width = *std::max_element(windows.begin(), windows.end());
  return static_cast<int>(windows.size()) == options.layers &&
         std::all_of(windows.begin(), windows.end(),
                     [&](int64_t window) { return window == 0 || window == width; });
}

absl::Status CheckOptions(const StoreOptions& options) {
  const auto check = [](bool ok, absl::string_view what) {
    return ok ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrCat("store: bad ", what));
  };
  TOKEND_RETURN_IF_ERROR(check(options.layers >= 1, "layers"));
  TOKEND_RETURN_IF_ERROR(
      check(options.page_tokens >= 1 && options.page_tokens <= 256, "page_tokens"));
  TOKEND_RETURN_IF_ERROR(check(
      options.pages >= options.layers && options.pages <= std::numeric_limits<int32_t>::max() - 16,
      "pages"));
  TOKEND_RETURN_IF_ERROR(check(options.page_bytes >= 0, "page_bytes"));
  TOKEND_RETURN_IF_ERROR(check(options.context_tokens >= 1, "context_tokens"));
  TOKEND_RETURN_IF_ERROR(check(LocalWindowsAreGood(options), "local_windows"));
  TOKEND_RETURN_IF_ERROR(check(options.max_sessions >= 1, "max_sessions"));
  TOKEND_RETURN_IF_ERROR(check(options.max_versions >= 1, "max_versions"));
  for (const auto& [principal, pages] : options.quota_pages) {
    TOKEND_RETURN_IF_ERROR(check(pages >= 0, "quota_pages"));
  }
  return check(options.digest_bits >= 0 && options.digest_bits <= 64, "digest_bits");
}

VersionInfo InfoOf(const Session& session, const VersionRecord& version) {
  return {.session_id = session.id,
          .number = version.number,
          .parent = version.parent,
          .tokens = version.tokens,
          .request_id = version.request_id,
          .reason = version.reason,
          .create_time = version.create_time};
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionStore>> SessionStore::Create(const StoreOptions& options,
                                                                   ops::Backend* backend,
                                                                   base::Clock* clock,
                                                                   base::Observer* observer) {
  TOKEND_RETURN_IF_ERROR(CheckOptions(options));
  return std::unique_ptr<SessionStore>(
      new SessionStore(std::make_unique<StoreState>(options, backend, clock, observer)));
}

SessionStore::SessionStore(std::unique_ptr<StoreState> state) : state_(std::move(state)) {}
SessionStore::~SessionStore() = default;

absl::StatusOr<SessionInfo> SessionStore::CreateSession(absl::string_view principal,
                                                        absl::string_view id,
                                                        const SessionSpec& spec) {
  TOKEND_RETURN_IF_ERROR(ValidateSpec(spec, state_->options));
  MutexLock lock(&state_->mu);
  TOKEND_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                          state_->AddSession(principal, id, spec));
  state_->observer->OnSessionOp(SessionOp::kCreate);
  return state_->Info(*session);
}

absl::StatusOr<SessionInfo> SessionStore::GetSession(absl::string_view principal,
                                                     absl::string_view id) {
  MutexLock lock(&state_->mu);
  const std::shared_ptr<Session> session = state_->Find(principal, id);
  if (session == nullptr) return SessionNotFound(id);
  state_->observer->OnSessionOp(SessionOp::kGet);
  return state_->Info(*session);
}

std::vector<SessionInfo> SessionStore::ListSessions(absl::string_view principal,
                                                    absl::string_view after, int limit) {
  MutexLock lock(&state_->mu);
  std::vector<SessionInfo> infos;
  const StoreState::SessionKey key = {std::string(principal), std::string(after)};
  for (auto at = state_->sessions.upper_bound(key); at != state_->sessions.end(); ++at) {
    if (at->first.first != principal || static_cast<int>(infos.size()) >= limit) break;
    if (!at->second->reserved) infos.push_back(state_->Info(*at->second));
  }
  state_->observer->OnSessionOp(SessionOp::kList);
  return infos;
}

absl::Status SessionStore::DeleteSession(absl::string_view principal, absl::string_view id,
                                         std::optional<int64_t> expected_version,
                                         bool allow_missing) {
  MutexLock lock(&state_->mu);
  const std::shared_ptr<Session> session = state_->Find(principal, id);
  if (session == nullptr) return allow_missing ? absl::OkStatus() : SessionNotFound(id);
  TOKEND_RETURN_IF_ERROR(state_->CheckExpected(*session, expected_version));
  state_->RemoveSession(session.get());
  state_->observer->OnSessionOp(SessionOp::kDelete);
  return absl::OkStatus();
}

absl::StatusOr<SessionInfo> SessionStore::Fork(absl::string_view principal,
                                               absl::string_view source,
                                               std::optional<int64_t> version, absl::string_view id,
                                               std::optional<int64_t> end_position) {
  MutexLock lock(&state_->mu);
  const std::shared_ptr<Session> from = state_->Find(principal, source);
  if (from == nullptr) return SessionNotFound(source);
  TOKEND_ASSIGN_OR_RETURN(const VersionRecord* base, state_->FindVersion(*from, version));
  const int64_t tokens = base == nullptr ? 0 : base->tokens;
  const int64_t first = base == nullptr ? 0 : state_->tree.FirstPosition(base->claim.node());
  const int64_t end = end_position.value_or(tokens);
  if (end < first || end > tokens) return BadPosition(end, first, tokens);
  TOKEND_ASSIGN_OR_RETURN(const std::shared_ptr<Session> fork, state_->AddFork(*from, id));
  VersionRecord record = {.number = Version{fork->next_number++}, .tokens = end};
  if (base == nullptr) {
    record.claim = state_->tree.Take(state_->Root(*fork), 0, Claim::Kind::kStrong);
  } else {
    record.computed = std::min(base->computed, end);
    record.conversation = CutConversation(base->conversation, end);
    record.claim = state_->TakeCut(*base, end);
    fork->forked_from =
        absl::StrCat("sessions/", from->id, "/versions/", static_cast<int64_t>(base->number));
  }
  state_->AddVersion(fork.get(), std::move(record));
  state_->observer->OnSessionOp(SessionOp::kFork);
  return state_->Info(*fork);
}

absl::StatusOr<SessionInfo> SessionStore::Rollback(absl::string_view principal,
                                                   absl::string_view id, int64_t version,
                                                   std::optional<int64_t> expected_version) {
  MutexLock lock(&state_->mu);
  const std::shared_ptr<Session> session = state_->Find(principal, id);
  if (session == nullptr) return SessionNotFound(id);
  TOKEND_ASSIGN_OR_RETURN(const VersionRecord* target, state_->FindVersion(*session, version));
  TOKEND_RETURN_IF_ERROR(state_->CheckExpected(*session, expected_version));
  if (!session->line.empty()) return SessionBusy(id);
  TOKEND_RETURN_IF_ERROR(state_->Fault(FaultPoint::kPublish));
  TOKEND_RETURN_IF_ERROR(state_->CheckRollback(*session, *target));
  VersionRecord record = {.number = Version{session->next_number++},
                          .parent = target->number,
                          .tokens = target->tokens,
                          .computed = target->computed,
                          .conversation = target->conversation};
  record.claim = state_->TakeCut(*target, target->tokens);
  state_->AddVersion(session.get(), std::move(record));
  state_->observer->OnSessionOp(SessionOp::kRollback);
  return state_->Info(*session);
}

absl::StatusOr<std::vector<VersionInfo>> SessionStore::ListVersions(absl::string_view principal,
                                                                    absl::string_view id,
                                                                    std::optional<int64_t> before,
                                                                    int limit) {
  MutexLock lock(&state_->mu);
  const std::shared_ptr<Session> session = state_->Find(principal, id);
  if (session == nullptr) return SessionNotFound(id);
  std::vector<VersionInfo> infos;
  for (auto at = session->versions.rbegin(); at != session->versions.rend(); ++at) {
    if (before && static_cast<int64_t>(at->number) >= *before) continue;
    if (static_cast<int>(infos.size()) >= limit) break;
    infos.push_back(InfoOf(*session, *at));
  }
  state_->observer->OnSessionOp(SessionOp::kList);
  return infos;
}

absl::StatusOr<TokenSlice> SessionStore::ReadTokens(absl::string_view principal,
                                                    absl::string_view id,
                                                    std::optional<int64_t> version,
                                                    std::optional<int64_t> start, int limit) {
  MutexLock lock(&state_->mu);
  const std::shared_ptr<Session> session = state_->Find(principal, id);
  if (session == nullptr) return SessionNotFound(id);
  TOKEND_ASSIGN_OR_RETURN(const VersionRecord* record, state_->FindVersion(*session, version));
  const int64_t first = record == nullptr ? 0 : state_->tree.FirstPosition(record->claim.node());
  TokenSlice slice = {.session_id = session->id, .start = start.value_or(first)};
  if (record != nullptr) {
    slice.version = record->number;
    slice.total_tokens = record->tokens;
  }
  if (slice.start < first || slice.start > slice.total_tokens) {
    return BadPosition(slice.start, first, slice.total_tokens);
  }
  if (record != nullptr) {
    const int64_t end = std::min(slice.total_tokens, slice.start + limit);
    state_->tree.ReadTokens(record->claim.node(), slice.start, end, &slice.tokens);
  }
  state_->observer->OnSessionOp(SessionOp::kRead);
  return slice;
}

StoreSnapshot SessionStore::Snapshot() {
  MutexLock lock(&state_->mu);
  StoreSnapshot snapshot = {.pages = state_->CountPages(),
                            .page_bytes = state_->options.page_bytes};
  for (const auto& [key, session] : state_->sessions) {
    if (session->reserved) continue;
    ++snapshot.sessions;
    snapshot.versions += static_cast<int64_t>(session->versions.size());
  }
  return snapshot;
}

void SessionStore::BeginStep() {
  base::MutexLock lock(&state_->mu);
  state_->pool.BeginStep();
}

void SessionStore::EndStep() {
  base::MutexLock lock(&state_->mu);
  state_->pool.EndStep();
}

void SessionStore::Maintain() {
  state_->DeleteIdle();
  state_->Drain();
  state_->Forget();
}

int64_t SessionStore::ObtainablePages(absl::string_view principal) {
  MutexLock lock(&state_->mu);
  return state_->Obtainable(principal);
}

}  // namespace tokend::kv
