#include "tests/core/engine/session_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/kv/errors.h"
#include "tests/support/fake_backend.h"

namespace tokend::testing {
std::string SessionCall::fork_name() const {
  constexpr absl::string_view kPrefix = "sessions/";
  if (!started.has_value() || started->fork_name.size() <= kPrefix.size()) return "";
  return started->fork_name.substr(kPrefix.size());
}

Tokens TokenPool::Reply(const Tokens& tokens, int count) {
  Tokens& reply = replies_[tokens];
  if (static_cast<int>(reply.size()) < count) {
    FakeReference reference(options_.vocabulary_size,
                            std::vector<ops::AttentionMask>(static_cast<size_t>(options_.layers)));
    reference.Append(tokens);
    reference.Append(reply);
    while (static_cast<int>(reply.size()) < count) {
      const std::vector<float> logits = reference.Logits(reference.size() - 1);
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      reply.push_back(static_cast<int32_t>(best));
      reference.Append({reply.back()});
    }
  }
  return Tokens(reply.begin(), reply.begin() + count);
}

SessionModel::Session* SessionModel::Find(const std::string& name) {
  const auto found = sessions_.find(name);
  return found == sessions_.end() || found->second.reserved ? nullptr : &found->second;
}

SessionModel::Session* SessionModel::Alive(const std::string& name, int incarnation) {
  const auto found = sessions_.find(name);
  if (found == sessions_.end() || found->second.incarnation != incarnation) return nullptr;
  return &found->second;
}

absl::Status SessionModel::CanAdd(const std::string& name) const {
  if (sessions_.count(name) > 0) return kv::SessionExists(name);
  return absl::OkStatus();
}

SessionModel::Session& SessionModel::Add(const std::string& name) {
  Session& session = sessions_[name];
  session.incarnation = next_incarnation_++;
  return session;
}

void SessionModel::AddVersion(Session* session, const Tokens* tokens) {
  session->versions.push_back({session->next_number++, tokens});
  if (static_cast<int>(session->versions.size()) > pool_->options().max_versions) {
    session->versions.erase(session->versions.begin());
  }
}

const Tokens* SessionModel::TokensOf(const Session& session) {
  return session.versions.empty() ? pool_->Get({}) : session.versions.back().tokens;
}

absl::Status SessionModel::FindVersion(const std::string& name, const Session& session,
                                       std::optional<int64_t> number, const Version** found) const {
  *found = nullptr;
  for (const Version& version : session.versions) {
    if (!number.has_value() || version.number == *number) *found = &version;
  }
  if (*found != nullptr || !number.has_value()) return absl::OkStatus();
  if (session.versions.empty() || *number > session.head() || *number < 1) {
    return kv::VersionNotFound(name, *number);
  }
  return kv::VersionNotRetained(name, *number, kv::Version{session.versions.front().number});
}

bool SessionModel::Tell(const std::string& uid, Session* session) {
  if (session->uid.empty()) session->uid = uid;
  return session->uid == uid;
}

// Whether a good answer shows the session as it is.
bool SessionModel::Knows(const SessionCall& call, Session* session) {
  if (call.lost) return true;
  return Tell(call.uid, session) && call.head == session->head() &&
         call.total_tokens == static_cast<int64_t>(TokensOf(*session)->size()) &&
         call.active_turns == static_cast<int32_t>(session->line.size());
}

absl::Status SessionModel::Delete(const SessionCall& call) {
  const Session* const session = Find(call.session);
  if (session == nullptr) {
    return call.allow_missing ? absl::OkStatus() : kv::SessionNotFound(call.session);
  }
  if (call.expected_version.value_or(session->head()) != session->head()) {
    return kv::VersionMismatch(*call.expected_version, kv::Version{session->head()});
  }
  sessions_.erase(call.session);
  return absl::OkStatus();
}

absl::Status SessionModel::Fork(const SessionCall& call, bool* fits) {
  Session* const source = Find(call.session);
  if (source == nullptr) return kv::SessionNotFound(call.session);
  const Version* base = nullptr;
  TOKEND_RETURN_IF_ERROR(FindVersion(call.session, *source, call.version, &base));
  const Tokens all = base == nullptr ? Tokens{} : *base->tokens;
  const auto size = static_cast<int64_t>(all.size());
  const int64_t end = call.position.value_or(size);
  if (end < 0 || end > size) return kv::BadPosition(end, 0, size);
  TOKEND_RETURN_IF_ERROR(CanAdd(call.new_session));
  Session& fork = Add(call.new_session);
  AddVersion(&fork, pool_->Get(Tokens(all.begin(), all.begin() + end)));
  *fits = Knows(call, &fork);
  return absl::OkStatus();
}

absl::Status SessionModel::Rollback(const SessionCall& call, bool* fits) {
  Session* const session = Find(call.session);
  if (session == nullptr) return kv::SessionNotFound(call.session);
  const Version* target = nullptr;
  TOKEND_RETURN_IF_ERROR(FindVersion(call.session, *session, call.version, &target));
  if (call.expected_version.value_or(session->head()) != session->head()) {
    return kv::VersionMismatch(*call.expected_version, kv::Version{session->head()});
  }
  if (!session->line.empty()) return kv::SessionBusy(call.session);
  AddVersion(session, target->tokens);
  *fits = Knows(call, session);
  return absl::OkStatus();
}

absl::Status SessionModel::Read(const SessionCall& call, bool* fits) {
  Session* const session = Find(call.session);
  if (session == nullptr) return kv::SessionNotFound(call.session);
  const Version* version = nullptr;
  TOKEND_RETURN_IF_ERROR(FindVersion(call.session, *session, call.version, &version));
  const bool none = version == nullptr;
  *fits = call.lost || (call.head == (none ? 0 : version->number) &&
                        call.tokens == (none ? Tokens{} : *version->tokens));
  return absl::OkStatus();
}

absl::Status SessionModel::Answer(const SessionCall& call, bool* fits) {
  switch (call.kind) {
    case SessionCall::kCreate:
      TOKEND_RETURN_IF_ERROR(CanAdd(call.session));
      *fits = Knows(call, &Add(call.session));
      return absl::OkStatus();
    case SessionCall::kDelete:
      return Delete(call);
    case SessionCall::kFork:
      return Fork(call, fits);
    case SessionCall::kRollback:
      return Rollback(call, fits);
    case SessionCall::kGet: {
      Session* const session = Find(call.session);
      if (session == nullptr) return kv::SessionNotFound(call.session);
      *fits = Knows(call, session);
      return absl::OkStatus();
    }
    case SessionCall::kRead:
      return Read(call, fits);
    case SessionCall::kTurn:
      break;
  }
  return absl::OkStatus();
}

SessionModel::States SessionModel::Step(int index, const SessionCall& call) const {
  States states;
  switch (static_cast<Phase>(phases_[static_cast<size_t>(index)])) {
    case kNone:
      break;
    case kWaiting:
      Start(index, call, &states);
      Leave(index, call, &states);
      return states;
    case kRunning:
      Commit(index, call, &states);
      Leave(index, call, &states);
      return states;
    case kCommitted:
    case kRefused:
      Leave(index, call, &states);
      return states;
    case kDone:
      return states;
  }
  if (call.kind == SessionCall::kTurn) return Enter(index, call);
  SessionModel next = *this;
  bool fits = true;
  const absl::Status status = next.Answer(call, &fits);
  next.phase(index) = kDone;
  if (call.lost || (fits && status == call.status)) states.push_back(std::move(next));
  return states;
}

int64_t SessionModel::Deadline(int index, const SessionCall& call) const {
  const char at = phases_[static_cast<size_t>(index)];
  if (at == kDone) return SessionCall::kNever;
  if (at == kNone && call.admitted != SessionCall::kNever) return call.admitted;
  if (at == kWaiting && call.began != SessionCall::kNever) return call.began;
  return call.lost ? SessionCall::kNever : call.returned;
}

// Turns enter at once, and all else happens in the order of the answers. Where an
// answer was lost, its time is a hint at least.
int64_t SessionModel::Guess(int index, const SessionCall& call) const {
  const bool enters =
      call.kind == SessionCall::kTurn && phases_[static_cast<size_t>(index)] == kNone;
  return enters ? call.invoked : std::min(Deadline(index, call), call.returned);
}

std::string SessionModel::Key() const {
  std::string key = phases_;
  const auto add = [&key](int64_t value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const auto& [name, session] : sessions_) {
    absl::StrAppend(&key, name, "/", session.uid, "/");
    add(session.incarnation);
    add(session.next_number * 4 + session.reserved * 2 + session.provisional);
    for (const Version& version : session.versions) {
      add(version.number);
      add(reinterpret_cast<intptr_t>(version.tokens));
    }
    for (const int turn : session.line) add(-1 - turn);
  }
  for (const auto& [index, turn] : turns_) {
    add(index);
    add(turn.incarnation);
    add(turn.fork_incarnation);
    add(turn.base_number);
    add(reinterpret_cast<intptr_t>(turn.prompt));
  }
  return key;
}

}  // namespace tokend::testing
