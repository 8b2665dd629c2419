// Writers, checkout and commit.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/kv/branch_state.h"
#include "core/kv/errors.h"
#include "core/kv/session_store.h"
#include "core/kv/store_state.h"

namespace tokend::kv {

using base::MutexLock;

absl::StatusOr<std::unique_ptr<Writer>> SessionStore::Admit(const WriteIntent& intent) {
  const SessionSpec spec = intent.spec_if_missing.value_or(SessionSpec{});
  TOKEND_RETURN_IF_ERROR(ValidateSpec(spec, state_->options));
  auto writer = std::make_unique<WriterState>();
  writer->intent = intent;
  {
    MutexLock lock(&state_->mu);
    writer->session = state_->Find(intent.principal, intent.session_id);
    if (writer->session == nullptr) {
      if (!intent.allow_missing || intent.session_id.empty()) {
        return SessionNotFound(intent.session_id);
      }
      TOKEND_ASSIGN_OR_RETURN(writer->session,
                              state_->AddSession(intent.principal, intent.session_id, spec));
      writer->session->provisional = true;
    }
    Session& session = *writer->session;
    const bool behind = !session.line.empty();
    if (behind && intent.on_conflict == WriteIntent::OnConflict::kAbort) {
      return SessionBusy(session.id);
    }
    if (behind && intent.on_conflict == WriteIntent::OnConflict::kFork) {
      TOKEND_ASSIGN_OR_RETURN(writer->fork, state_->AddFork(session, ""));
      writer->fork->reserved = true;
      writer->fork_id = writer->fork->id;
      ++session.forks;
    } else {
      session.line.push_back(writer.get());
    }
  }
  return std::make_unique<Writer>(state_.get(), std::move(writer));
}

Writer::Writer(StoreState* store, std::unique_ptr<WriterState> state)
    : store_(store), state_(std::move(state)) {}

Writer::~Writer() {
  MutexLock lock(&store_->mu);
  if (state_->started && !state_->committed) {
    store_->observer->OnSessionOp(base::SessionOp::kDrop);
  }
  Session* const fork = state_->fork.get();
  if (fork != nullptr && fork->reserved) store_->RemoveSession(fork);
  Session* const session = state_->session.get();
  if (fork != nullptr) {
    --session->forks;
  } else {
    session->line.remove(state_.get());
    if (state_->started) session->pin_reserved = 0;
  }
  session->last_use = store_->clock->Monotonic();
  if (session->provisional && !session->in_use() && !session->deleted) {
    store_->RemoveSession(session);
  }
}

bool Writer::ready() const {
  MutexLock lock(&store_->mu);
  return state_->fork != nullptr || state_->session->deleted ||
         state_->session->line.front() == state_.get();
}

absl::Status Writer::status() const {
  MutexLock lock(&store_->mu);
  // Once it has its branch, a fork needs its source no more.
  const bool needs_session = state_->fork == nullptr || !state_->started;
  if (needs_session && state_->session->deleted) return SessionDeleted(state_->session->id);
  if (state_->fork != nullptr && state_->fork->deleted) return SessionDeleted(state_->fork_id);
  return absl::OkStatus();
}

const std::string& Writer::fork_id() const { return state_->fork_id; }
const WriteIntent& Writer::intent() const { return state_->intent; }

absl::StatusOr<std::unique_ptr<Branch>> SessionStore::Checkout(
    Writer* writer, std::optional<int64_t> from_position) {
  WriterState& turn = *writer->state_;
  BranchBase base;
  {
    MutexLock lock(&state_->mu);
    Session& session = *turn.session;
    if (session.deleted) return SessionDeleted(session.id);
    TOKEND_CHECK(turn.fork != nullptr || session.line.front() == &turn);
    TOKEND_RETURN_IF_ERROR(state_->CheckExpected(session, turn.intent.expected_version));
    base.tokens = from_position.value_or(session.tokens());
    const int64_t first = session.versions.empty()
                              ? 0
                              : state_->tree.FirstPosition(session.versions.back().claim.node());
    if (base.tokens < first || base.tokens > session.tokens()) {
      return BadPosition(base.tokens, first, session.tokens());
    }
    base.session = turn.session;
    base.principal = session.principal;
    base.forks = turn.fork != nullptr;
    if (session.versions.empty()) {
      base.claim = state_->tree.Take(state_->Root(session), 0, Claim::Kind::kStrong);
    } else {
      const VersionRecord& head = session.versions.back();
      base.number = head.number;
      base.version_name =
          absl::StrCat("sessions/", session.id, "/versions/", static_cast<int64_t>(head.number));
      base.computed = std::min(head.computed, base.tokens);
      if (session.spec.pinned) base.pinned = base.forks ? base.computed : head.computed;
      base.conversation = ForgetMessages(CutConversation(head.conversation, base.tokens), first);
      base.claim = state_->TakeCut(head, base.tokens);
    }
    turn.started = true;
  }
  return std::make_unique<Branch>(std::make_unique<BranchState>(state_.get(), std::move(base)));
}

std::unique_ptr<Branch> SessionStore::CheckoutEphemeral(absl::string_view principal) {
  BranchBase base;
  base.principal = std::string(principal);
  {
    MutexLock lock(&state_->mu);
    base.claim = state_->tree.Take(state_->Root(principal), 0, Claim::Kind::kStrong);
  }
  return std::make_unique<Branch>(std::make_unique<BranchState>(state_.get(), std::move(base)));
}

absl::StatusOr<VersionInfo> SessionStore::Commit(Writer* writer, std::unique_ptr<Branch> branch,
                                                 const CommitRequest& request) {
  return branch->state_->Commit(writer->state_.get(), request);
}

}  // namespace tokend::kv
