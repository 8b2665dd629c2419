// Sessions, their versions and the branches that turns run on.
//
// Tokens are the truth; KV is a cache. A turn checks out a private branch of its
// session's head, appends to it, and either commits a new immutable version by a
// compare-and-swap on (incarnation, head) or is dropped and leaves no trace.
//
// Threads: session operations may be called from any thread and never wait for
// a step. Writers are admitted from any thread. Branches, Checkout, Commit and
// Maintain belong to the engine thread, which alone changes the page pool.
// Releases that happen elsewhere are queued and drained there.
#ifndef TOKEND_CORE_KV_SESSION_STORE_H_
#define TOKEND_CORE_KV_SESSION_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/observer.h"
#include "core/kv/branch.h"
#include "core/kv/store_hooks.h"
#include "core/kv/types.h"
#include "core/ops/backend.h"
#include "core/ops/sampling_params.h"

namespace tokend::kv {

struct StoreOptions {
  int layers = 0;
  int page_tokens = 16;    // [1, 256]
  int64_t pages = 0;       // in the arena, over all layers
  int64_t page_bytes = 0;  // of one page, for the snapshot
  int64_t context_tokens = 0;
  // Roots of the prefix index differ where any of these does.
  std::string model_fingerprint;
  // By layer: how many positions a query of it sees, its own included, whatever
  // the session's policy; 0: all. Zero or one other width. Empty: all layers are
  // global.
  std::vector<int64_t> local_windows;
  base::KvDtype kv_dtype = base::KvDtype::kF16;
  bool heavy_hitters = true;  // false: the backend cannot serve them
  // One principal's pages are lent to another's turns.
  bool share_prefixes = false;
  int max_sessions = 1024;
  int max_versions = 16;  // retained per session, the head included
  std::optional<absl::Duration> default_idle_ttl;
  // By principal: the pages that its sessions may pin. No other principal's turns
  // take the pages of its heads that fit into them, those used last first. Absent: no
  // bound, and no such protection.
  std::map<std::string, int64_t> quota_pages;
  // Tokens that a turn looks back at beside their KV. A session that forgets keeps
  // so many before its first position.
  int64_t look_back_tokens = ops::kPenaltyWindowTokens;

  StoreHooks* hooks = nullptr;  // for tests; outlives the store
  // For tests. Keeps so many bits of a node's digest, so that digests collide.
  int digest_bits = 64;
};

// What a turn wants of a session; see tokend.v1.SessionTarget.
struct WriteIntent {
  std::string principal;
  std::string session_id;
  bool allow_missing = false;
  std::optional<SessionSpec> spec_if_missing;
  std::optional<int64_t> expected_version;
  enum class OnConflict { kQueue, kAbort, kFork } on_conflict = OnConflict::kQueue;
};

struct CommitRequest {
  // The version ends here: positions [0, tokens). At most Branch::tokens().
  int64_t tokens = 0;
  std::string request_id;
  FinishReason reason = FinishReason::kUnspecified;
  Conversation conversation;  // may be null: no chat turns
};

// What a turn can have of the pool, whoever gives way to it.
struct TurnRoom {
  int64_t total_pages = 0;
  // Less pins of other sessions, the one that a turn forks from included, and what
  // other principals hold within their quotas.
  int64_t pages = 0;
  // Where the turn's version will be pinned and its principal has a quota: the quota,
  // and how much of it other sessions leave.
  std::optional<int64_t> quota_pages;
  std::optional<int64_t> pin_pages;
};

class StoreState;
class WriterState;
struct Session;

// A turn's place in its session's line. Any thread; the store outlives it.
class Writer {
 public:
  Writer(StoreState* store, std::unique_ptr<WriterState> state);
  // Leaves the line; the next writer becomes ready. A session that a writer made
  // (allow_missing) and that has no version yet is gone with its last writer, those
  // beside the line (kFork) included.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // First in line, running beside the line (kFork), or its session was deleted.
  bool ready() const;
  // OK, or ABORTED: SESSION_DELETED.
  absl::Status status() const;
  // kFork with a running writer: the session that this turn will become.
  const std::string& fork_id() const;
  const WriteIntent& intent() const;

 private:
  friend class SessionStore;
  StoreState* const store_;
  std::unique_ptr<WriterState> state_;
};

class SessionStore {
 public:
  // `backend` copies pages; it must have its arena. `clock` and `observer`
  // outlive the store, as does `backend`. INVALID_ARGUMENT names an option that
  // is out of its range.
  static absl::StatusOr<std::unique_ptr<SessionStore>> Create(const StoreOptions& options,
                                                              ops::Backend* backend,
                                                              base::Clock* clock,
                                                              base::Observer* observer);
  // All branches and writers are gone by now.
  ~SessionStore();

  // --- Any thread. Errors as in tokend.v1.SessionService. Names are each
  // principal's own: another's session is NOT_FOUND and takes no name away. ---

  // An empty id: the store picks one. A pinned one may be QUOTA_EXCEEDED.
  absl::StatusOr<SessionInfo> CreateSession(absl::string_view principal, absl::string_view id,
                                            const SessionSpec& spec);
  absl::StatusOr<SessionInfo> GetSession(absl::string_view principal, absl::string_view id);
  // At most `limit`, by id, those after `after` ("" for the start).
  std::vector<SessionInfo> ListSessions(absl::string_view principal, absl::string_view after,
                                        int limit);
  // Running and queued writers see SESSION_DELETED in Writer::status().
  absl::Status DeleteSession(absl::string_view principal, absl::string_view id,
                             std::optional<int64_t> expected_version, bool allow_missing);
  // `version` absent: the head. `end_position` absent: all of it; OUT_OF_RANGE:
  // BAD_POSITION, before the version's first position. The fork keeps retention,
  // idle_ttl and history_tokens, and is not pinned.
  absl::StatusOr<SessionInfo> Fork(absl::string_view principal, absl::string_view source,
                                   std::optional<int64_t> version, absl::string_view id,
                                   std::optional<int64_t> end_position);
  // The new version's parent is `version`. A pinned session may not pin what turns
  // that were admitted need (KV_POOL_FULL), nor more than the quota.
  absl::StatusOr<SessionInfo> Rollback(absl::string_view principal, absl::string_view id,
                                       int64_t version, std::optional<int64_t> expected_version);
  // Newest first; those below `before` (absent: from the head).
  absl::StatusOr<std::vector<VersionInfo>> ListVersions(absl::string_view principal,
                                                        absl::string_view id,
                                                        std::optional<int64_t> before, int limit);
  // `version` absent: the head. `start` absent: the version's first position;
  // OUT_OF_RANGE: BAD_POSITION, before it.
  absl::StatusOr<TokenSlice> ReadTokens(absl::string_view principal, absl::string_view id,
                                        std::optional<int64_t> version,
                                        std::optional<int64_t> start, int limit);
  StoreSnapshot Snapshot();

  // Puts a turn into its session's line (creating the session where asked).
  // NOT_FOUND; RESOURCE_EXHAUSTED: SESSION_LIMIT; ABORTED: SESSION_BUSY for
  // kAbort behind another; for kFork behind another the new session's name and
  // place are reserved.
  absl::StatusOr<std::unique_ptr<Writer>> Admit(const WriteIntent& intent);

  // --- Engine thread. ---

  // Ask before MatchPrefix. `writer`: what the turn will commit with, or nullptr.
  TurnRoom RoomFor(const Branch& branch, const Writer* writer);
  // Admits a turn that may need `pages` (Branch::PagesBesideHead): as long as the branch
  // lives, no pin takes them. Where its own version will be pinned, the session counts
  // until the writer ends as if it pinned `pin_pages` (Branch::PagesInAll). KV_POOL_FULL:
  // another turn that was admitted may need that, or less is left than `room` says.
  absl::Status Reserve(Branch* branch, const Writer* writer, const TurnRoom& room, int64_t pages,
                       int64_t pin_pages);

  // The branch that the writer's turn runs on; the writer must be ready(). With
  // `from_position` the base is cut there. ABORTED: VERSION_MISMATCH,
  // SESSION_DELETED; OUT_OF_RANGE: BAD_POSITION. May be repeated, e.g. with
  // another cut; what one branch commits, another cannot.
  absl::StatusOr<std::unique_ptr<Branch>> Checkout(Writer* writer,
                                                   std::optional<int64_t> from_position);
  // A turn without a session: FULL retention, nothing kept but cached pages.
  std::unique_ptr<Branch> CheckoutEphemeral(absl::string_view principal);

  // Makes the branch the session's next version. ABORTED (VERSION_MISMATCH,
  // SESSION_DELETED) and OUT_OF_RANGE (BAD_POSITION: it would end before the base's
  // first position) leave the session as it was. The branch is used up.
  absl::StatusOr<VersionInfo> Commit(Writer* writer, std::unique_ptr<Branch> branch,
                                     const CommitRequest& request);

  // Between steps: drains queued releases, deletes idle sessions, forgets tokens that
  // no session has to keep. Sessions that grew by as many tokens as they keep are
  // looked at, so what a token costs does not depend on how many were before it.
  void Maintain();

  // A step over branches' pages was submitted; the oldest one was collected, or nobody
  // waits for it any more. Pages given up in between are quarantined until the newest
  // step that was in flight then has ended.
  void BeginStep();
  void EndStep();

  // Pages that could be had for new work once no step is in flight: free, or cached
  // without an owner, or held only by sessions that are not pinned, and by no branch
  // that is not parked. Without what principals other than `principal` hold within
  // their quotas.
  int64_t ObtainablePages(absl::string_view principal = "");

 private:
  friend class StoreAudit;
  explicit SessionStore(std::unique_ptr<StoreState> state);
  // Whose next version the turn's will be; nullptr: none that is there.
  static Session* Target(const Writer* writer);
  std::unique_ptr<StoreState> state_;
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_SESSION_STORE_H_
