// Interpreter: operations on sessions.
#include <algorithm>
#include <utility>

#include "tests/core/kv/interpreter.h"

namespace tokend::kv {

using base::ErrorReason;

bool Interpreter::Create(const Op& op) {
  const Name name = NameOf(op.a);
  SessionSpec spec = {.retention = PolicyOf(op.b),
                      .pinned = op.c % (options_.quota > 0 ? 4 : 16) == 1};
  const bool heavy = spec.retention.kind == RetentionPolicy::Kind::kHeavyHitters;
  if (heavy && !options_.local_windows.empty()) spec.retention = {};
  if (op.c / 16 % 4 == 1) spec.idle_ttl = absl::Seconds(10);
  const bool windowed = spec.retention.kind == RetentionPolicy::Kind::kSlidingWindow;
  if (windowed && op.c / 64 % 6 > 0) spec.history_tokens = 1 + op.c / 384 % 9;
  const bool over_quota = spec.pinned && OverQuota(name, harness_.options().layers);
  auto info = store().CreateSession(name.first, name.second, spec);
  if (FindModel(name) != nullptr) {
    ExpectReason(info.status(), ErrorReason::kSessionExists, "CreateSession");
  } else if (AtLimit()) {
    ExpectReason(info.status(), ErrorReason::kSessionLimit, "CreateSession");
  } else if (over_quota) {
    ExpectReason(info.status(), ErrorReason::kQuotaExceeded, "CreateSession");
    ++coverage_.over_quota;
  } else if (!info.ok()) {
    Expect(IsFault(info.status()), "CreateSession fails", info.status().ToString());
  } else {
    sessions_[name] = {.policy = spec.retention,
                       .idle_ttl = spec.idle_ttl,
                       .pinned = spec.pinned,
                       .history = spec.history_tokens,
                       .uid = info->uid,
                       .last_use = now()};
  }
  return true;
}

bool Interpreter::Fork(const Op& op) {
  const Name name = NameOf(op.a);
  const Name to = {name.first, absl::StrCat("s", op.c % 5)};
  std::optional<int64_t> version = Maybe(op.b % 7);
  if (version) ++*version;
  std::optional<int64_t> end = Maybe(op.c / 5 % 30);
  const ModelSession* const session = FindModel(name);
  // About where the session's memory begins, or ends.
  if (end && session != nullptr && session->history > 0) {
    const auto size = static_cast<int64_t>(session->tokens().size());
    const int64_t first = session->first_position();
    *end += std::max<int64_t>(0, first > 0 && op.b % 2 == 0 ? first - 4 : size - 25);
  }
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
  const int64_t first = number == 0 ? 0 : session->versions.at(number).first_position;
  if (end && (*end < first || *end > static_cast<int64_t>(tokens.size()))) {
    ExpectReason(info.status(), ErrorReason::kBadPosition, "Fork");
    if (*end < first) ++coverage_.not_kept;
  } else if (FindModel(to) != nullptr) {
    ExpectReason(info.status(), ErrorReason::kSessionExists, "Fork");
  } else if (AtLimit()) {
    ExpectReason(info.status(), ErrorReason::kSessionLimit, "Fork");
  } else if (!info.ok()) {
    Expect(IsFault(info.status()), "Fork fails", info.status().ToString());
  } else {
    if (end) tokens.resize(*end);
    ModelSession fork = {.policy = session->policy,
                         .idle_ttl = session->idle_ttl,
                         .history = session->history,
                         .uid = info->uid};
    AddVersion(&fork, std::move(tokens), 0, first);
    sessions_[to] = std::move(fork);
  }
  return true;
}

bool Interpreter::Rollback(const Op& op) {
  const Name name = NameOf(op.a);
  const int64_t version = 1 + op.b % 8;
  const std::optional<int64_t> expected = Maybe(op.c % 8);
  ModelSession* const session = FindModel(name);
  const bool over_quota =
      session != nullptr && session->pinned &&
      OverQuota(name, harness_.audit().VersionPages(name.first, name.second, version));
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
  } else if (IsFault(info.status())) {
    return true;
  } else if (over_quota) {
    ExpectReason(info.status(), ErrorReason::kQuotaExceeded, "Rollback");
    ++coverage_.over_quota;
  } else if (!info.ok()) {
    ExpectOk(info.status(), "Rollback");
  } else {
    const ModelVersion target = session->versions.at(version);
    AddVersion(session, target.tokens, version, target.first_position);
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
  if (start < at->second.first_position) {
    ExpectReason(slice.status(), ErrorReason::kBadPosition, "ReadTokens");
    ++coverage_.not_kept;
    return true;
  }
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
        !InUse(name, session.uid)) {
      ++coverage_.expired;
      forks_.erase(std::remove(forks_.begin(), forks_.end(), name), forks_.end());
      at = sessions_.erase(at);
    } else {
      ++at;
    }
  }
  Forget();
}

void Interpreter::Forget() {
  for (auto& [name, session] : sessions_) {
    for (auto& [number, version] : session.versions) {
      auto slice = store().ReadTokens(name.first, name.second, number, {}, 0);
      if (!slice.ok()) return ExpectOk(slice.status(), "ReadTokens");
      CheckForgotten(session.history, slice->total_tokens, slice->start, &version.first_position);
    }
  }
  for (OpenTurn& turn : turns_) {
    if (turn.branch == nullptr) continue;
    CheckForgotten(turn.history, turn.branch->base_tokens(), turn.branch->first_position(),
                   &turn.first_position);
  }
}

void Interpreter::CheckForgotten(int64_t history, int64_t tokens, int64_t now,
                                 int64_t* first_position) {
  const int64_t before = std::exchange(*first_position, now);
  if (now == before) return;
  HOLDS(history > 0);
  HOLDS(now > before);
  HOLDS(now + history <= tokens);
  ++coverage_.forgotten;
}

}  // namespace tokend::kv
