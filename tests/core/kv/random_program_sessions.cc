// Operations on sessions, and the comparison with the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "tests/core/kv/random_program.h"

namespace tokend::kv {
namespace {

using base::ErrorReason;
using base::GetErrorReason;

}  // namespace

void Program::CreateSession() {
  const Name name = AnyName();
  SessionSpec spec = {.retention = Policy(), .pinned = Chance(5)};
  auto info = store().CreateSession(name.first, name.second, spec);
  if (FindModel(name) != nullptr) {
    EXPECT_EQ(GetErrorReason(info.status()), ErrorReason::kSessionExists);
    return;
  }
  ASSERT_TRUE(info.ok()) << info.status();
  sessions_[name] = {.policy = spec.retention, .uid = info->uid};
}

void Program::Fork() {
  const Name name = AnyName();
  const std::string id = absl::StrCat("s", Below(5));
  ModelSession* session = FindModel(name);
  std::optional<int64_t> version, end;
  if (Chance(50)) version = 1 + Below(6);
  if (Chance(30)) end = Below(30);
  auto info = store().Fork(name.first, name.second, version, id, end);
  if (session == nullptr) {
    EXPECT_EQ(GetErrorReason(info.status()), ErrorReason::kNoSuchResource);
    return;
  }
  const int64_t number = version.value_or(session->head);
  if (number != 0 && session->versions.count(number) == 0) {
    EXPECT_EQ(info.status().code(), absl::StatusCode::kNotFound);
    return;
  }
  Tokens tokens = number == 0 ? Tokens() : session->versions[number].tokens;
  if (end && *end > static_cast<int64_t>(tokens.size())) {
    EXPECT_EQ(GetErrorReason(info.status()), ErrorReason::kBadPosition);
    return;
  }
  if (FindModel({name.first, id}) != nullptr) {
    EXPECT_EQ(GetErrorReason(info.status()), ErrorReason::kSessionExists);
    return;
  }
  ASSERT_TRUE(info.ok()) << info.status();
  if (end) tokens.resize(*end);
  ModelSession fork = {.policy = session->policy, .uid = info->uid};
  fork.Add(std::move(tokens), 0, MaxVersions());
  sessions_[{name.first, id}] = std::move(fork);
}

void Program::Rollback() {
  const Name name = AnyName();
  ModelSession* session = FindModel(name);
  const int64_t version = 1 + Below(8);
  auto info = store().Rollback(name.first, name.second, version, {});
  if (session == nullptr || session->versions.count(version) == 0) {
    EXPECT_EQ(info.status().code(), absl::StatusCode::kNotFound);
  } else if (Active(name, session->uid) > 0) {
    EXPECT_EQ(GetErrorReason(info.status()), ErrorReason::kSessionBusy);
  } else {
    ASSERT_TRUE(info.ok()) << info.status();
    session->Add(session->versions[version].tokens, version, MaxVersions());
  }
}

void Program::Delete() {
  Name name = AnyName();
  if (Chance(50) && !sessions_.empty()) name = sessions_.begin()->first;
  const absl::Status status = store().DeleteSession(name.first, name.second, {}, false);
  EXPECT_EQ(status.ok(), sessions_.erase(name) > 0);
}

void Program::ReadSome() {
  for (const auto& [name, session] : sessions_) {
    for (const auto& [number, version] : session.versions) {
      const int64_t size = static_cast<int64_t>(version.tokens.size());
      const int64_t start = Below(static_cast<int>(size) + 1);
      const int limit = 1 + Below(20);
      auto slice = store().ReadTokens(name.first, name.second, number, start, limit);
      ASSERT_TRUE(slice.ok()) << slice.status();
      const Tokens want(version.tokens.begin() + start,
                        version.tokens.begin() + std::min(size, start + limit));
      EXPECT_EQ(slice->tokens, want);
      EXPECT_EQ(slice->total_tokens, size);
    }
  }
}

void Program::CheckModel() {
  for (const auto& [name, session] : sessions_) {
    auto info = store().GetSession(name.first, name.second);
    ASSERT_TRUE(info.ok()) << name.second << ": " << info.status();
    EXPECT_EQ(info->uid, session.uid);
    EXPECT_EQ(static_cast<int64_t>(info->head), session.head);
    EXPECT_EQ(info->tokens, static_cast<int64_t>(session.tokens().size()));
    EXPECT_LE(info->resident_tokens, info->tokens);
    EXPECT_EQ(info->active_turns, Active(name, session.uid));
    auto versions = store().ListVersions(name.first, name.second, {}, 100);
    ASSERT_TRUE(versions.ok());
    ASSERT_EQ(versions->size(), session.versions.size());
    size_t i = versions->size();
    for (const auto& [number, version] : session.versions) {
      const VersionInfo& got = (*versions)[--i];
      EXPECT_EQ(static_cast<int64_t>(got.number), number);
      EXPECT_EQ(static_cast<int64_t>(got.parent), version.parent);
      EXPECT_EQ(got.tokens, static_cast<int64_t>(version.tokens.size()));
    }
  }
  EXPECT_EQ(store().Snapshot().sessions, static_cast<int64_t>(sessions_.size()));
}

}  // namespace tokend::kv
