// Interpreter: operations on sessions.
#include <algorithm>
#include <utility>

#include "tests/core/kv/interpreter.h"

namespace tokend::kv {

using base::ErrorReason;

bool Interpreter::Create(const Op& op) {
  const Name name = NameOf(op.a);
  SessionSpec spec = {.retention = PolicyOf(op.b), .pinned = op.c % 16 == 1};
  if (op.c / 16 % 4 == 1) spec.idle_ttl = absl::Seconds(10);
  auto info = store().CreateSession(name.first, name.second, spec);
  if (FindModel(name) != nullptr) {
    ExpectReason(info.status(), ErrorReason::kSessionExists, "CreateSession");
  } else if (AtLimit()) {
    ExpectReason(info.status(), ErrorReason::kSessionLimit, "CreateSession");
  } else if (!info.ok()) {
    Expect(IsFault(info.status()), "CreateSession fails", info.status().ToString());
  } else {
    sessions_[name] = {
        .policy = spec.retention, .idle_ttl = spec.idle_ttl, .uid = info->uid, .last_use = now()};
  }
  return true;
}

bool Interpreter::Fork(const Op& op) {
  const Name name = NameOf(op.a);
  const Name to = {name.first, absl::StrCat("s", op.c % 5)};
  std::optional<int64_t> version = Maybe(op.b % 7);
  if (version) ++*version;
  const std::optional<int64_t> end = Maybe(op.c / 5 % 30);
  const ModelSession* const session = FindModel(name);
  auto info = store().Fork(name.first, name.second, version, to.second, end);
  if (session == nullptr) {
    ExpectReason(info.status(), ErrorReason::kNoSuchResource, "Fork");
    return false;
  }
  const int64_t number = version.value_or(session->head);
  if (number != 0 && session->versions.count(number) == 0) {
    HOLDS(info.status().code() == absl::StatusCode::kNotFound);
    return true;
  }
  Tokens tokens = number == 0 ? Tokens() : session->versions.at(number).tokens;
  if (end && *end > static_cast<int64_t>(tokens.size())) {
    ExpectReason(info.status(), ErrorReason::kBadPosition, "Fork");
  } else if (FindModel(to) != nullptr) {
    ExpectReason(info.status(), ErrorReason::kSessionExists, "Fork");
  } else if (AtLimit()) {
    ExpectReason(info.status(), ErrorReason::kSessionLimit, "Fork");
  } else if (!info.ok()) {
    Expect(IsFault(info.status()), "Fork fails", info.status().ToString());
  } else {
    if (end) tokens.resize(*end);
    ModelSession fork = {
        .policy = session->policy, .idle_ttl = session->idle_ttl, .uid = info->uid};
    AddVersion(&fork, std::move(tokens), 0);
    sessions_[to] = std::move(fork);
  }
  return true;
}

bool Interpreter::Rollback(const Op& op) {
  const Name name = NameOf(op.a);
  const int64_t version = 1 + op.b % 8;
  const std::optional<int64_t> expected = Maybe(op.c % 8);
  ModelSession* const session = FindModel(name);
  auto info = store().Rollback(name.first, name.second, version, expected);
  if (session == nullptr) {
    ExpectReason(info.status(), ErrorReason::kNoSuchResource, "Rollback");
    return false;
  }
  if (session->versions.count(version) == 0) {
    HOLDS(info.status().code() == absl::StatusCode::kNotFound);
  } else if (expected && *expected != session->head) {
    ExpectReason(info.status(), ErrorReason::kVersionMismatch, "Rollback");
  } else if (Active(name, session->uid) > 0) {
    ExpectReason(info.status(), ErrorReason::kSessionBusy, "Rollback");
  } else if (!info.ok()) {
    Expect(IsFault(info.status()), "Rollback fails", info.status().ToString());
  } else {
    AddVersion(session, session->versions.at(version).tokens, version);
  }
  return true;
}

bool Interpreter::Delete(const Op& op) {
  const Name name = NameOf(op.a);
  const std::optional<int64_t> expected = Maybe(op.b % 8);
  const ModelSession* const session = FindModel(name);
  const absl::Status status = store().DeleteSession(name.first, name.second, expected, false);
  if (session == nullptr) {
    ExpectReason(status, ErrorReason::kNoSuchResource, "DeleteSession");
    return false;
  }
  if (expected && *expected != session->head) {
    ExpectReason(status, ErrorReason::kVersionMismatch, "DeleteSession");
    return true;
  }
  ExpectOk(status, "DeleteSession");
  sessions_.erase(name);
  forks_.erase(std::remove(forks_.begin(), forks_.end(), name), forks_.end());
  return true;
}

bool Interpreter::Read(const Op& op) {
  const Name name = NameOf(op.a);
  const ModelSession* const session = FindModel(name);
  if (session == nullptr || session->versions.empty()) return false;
  const auto at = std::next(session->versions.begin(), op.b % session->versions.size());
  const Tokens& tokens = at->second.tokens;
  const int64_t start = op.c % (static_cast<int64_t>(tokens.size()) + 1);
  const int limit = 1 + op.c % 19;
  auto slice = store().ReadTokens(name.first, name.second, at->first, start, limit);
  ExpectOk(slice.status(), "ReadTokens");
  if (!slice.ok()) return true;
  const auto end = std::min<int64_t>(static_cast<int64_t>(tokens.size()), start + limit);
  HOLDS(slice->tokens == Tokens(tokens.begin() + start, tokens.begin() + end));
  HOLDS(slice->total_tokens == static_cast<int64_t>(tokens.size()));
  return true;
}

void Interpreter::Maintain() {
  store().Maintain();
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    const auto& [name, session] = *at;
    if (session.idle_ttl && session.last_use + *session.idle_ttl <= now() &&
        Active(name, session.uid) == 0) {
      ++coverage_.expired;
      forks_.erase(std::remove(forks_.begin(), forks_.end(), name), forks_.end());
      at = sessions_.erase(at);
    } else {
      ++at;
    }
  }
}

}  // namespace tokend::kv
