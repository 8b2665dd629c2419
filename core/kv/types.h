// Values that cross the store's edge.
#ifndef TOKEND_CORE_KV_TYPES_H_
#define TOKEND_CORE_KV_TYPES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/kv/policy.h"

namespace tokend::kv {

// Of a session. Only grows; 0: no turn has committed yet.
enum class Version : int64_t { kNone = 0 };

// What the client fixes when it makes a session.
struct SessionSpec {
  RetentionPolicy retention;
  std::optional<absl::Duration> idle_ttl;  // absent: never deleted for idleness
  bool pinned = false;
  // The least tokens to keep of each version, the newest; 0: all. Windowed sessions
  // alone, no layer of which sees all.
  int64_t history_tokens = 0;
};

struct SessionInfo {
  std::string id;   // without "sessions/"
  std::string uid;  // of this incarnation
  SessionSpec spec;
  Version head = Version::kNone;
  int64_t tokens = 0;
  int64_t first_position = 0;   // of the head; tokens before it cannot be had
  int64_t resident_tokens = 0;  // of the head, with KV in memory
  int32_t active_turns = 0;     // running or queued
  std::string forked_from;      // "sessions/a/versions/3" or empty
  absl::Time create_time;
  absl::Time update_time;  // of the last commit or rollback
};

// Why a turn ended well. Same numbers as tokend.v1.FinishReason.
enum class FinishReason : int {
  kUnspecified = 0,
  kStop = 1,
  kEndOfText = 2,
  kLength = 3,
  kContextFull = 4,
  kTimeBudget = 5,
  kInterrupted = 6,
};

struct VersionInfo {
  std::string session_id;
  Version number = Version::kNone;
  Version parent = Version::kNone;
  int64_t tokens = 0;
  std::string request_id;
  FinishReason reason = FinishReason::kUnspecified;
  absl::Time create_time;
};

// Same numbers as tokend.v1.Role.
enum class Role : int { kSystem = 1, kUser = 2, kAssistant = 3 };

// A chat message and the tokens of the session that it became.
struct ChatMessage {
  Role role = Role::kUser;
  std::shared_ptr<const std::string> text;  // one for all copies; nullptr: none
  int64_t begin = 0;                        // positions [begin, end)
  int64_t end = 0;
  bool closed = true;  // false: an assistant turn without its end marker yet
  bool cut = false;    // an edit cut it: what is left of `text` is its tokens
};

// The conversation of a version; shared by the versions that build on it.
using Conversation = std::shared_ptr<const std::vector<ChatMessage>>;

struct TokenSlice {
  std::string session_id;
  Version version = Version::kNone;
  int64_t start = 0;
  std::vector<int32_t> tokens;
  int64_t total_tokens = 0;  // of the version
};

// Exclusive states; their sum is `total` in every snapshot.
struct PageCounts {
  int64_t total = 0;
  int64_t free = 0;
  int64_t cached = 0;
  int64_t private_pages = 0;
  int64_t shared = 0;
  int64_t pinned = 0;
  int64_t quarantined = 0;
};

// One consistent view of the store.
struct StoreSnapshot {
  PageCounts pages;
  int64_t page_bytes = 0;
  int64_t sessions = 0;
  int64_t versions = 0;
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_TYPES_H_
