// Inside of SessionStore, Branch and Writer.
#ifndef TOKEND_CORE_KV_STORE_STATE_H_
#define TOKEND_CORE_KV_STORE_STATE_H_

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/kv/node_tree.h"
#include "core/kv/page_pool.h"
#include "core/kv/root_key.h"
#include "core/kv/session_store.h"
#include "core/kv/types.h"

namespace tokend::kv {

class BranchState;

// An immutable snapshot of a session, and its claim: strong for a head whose KV
// is kept, weak for the others.
struct VersionRecord {
  Version number = Version::kNone;
  Version parent = Version::kNone;
  int64_t tokens = 0;
  int64_t computed = 0;  // positions that had KV at commit
  std::string request_id;
  FinishReason reason = FinishReason::kUnspecified;
  absl::Time create_time;
  Conversation conversation;
  Claim claim;  // on the node that holds token `tokens` - 1, or on the root
};

// Guarded by StoreState::mu.
struct Session {
  std::string principal;
  std::string id;
  std::string uid;
  SessionSpec spec;
  std::string forked_from;
  absl::Time create_time;
  absl::Time update_time;
  absl::Duration last_use;  // monotonic

  std::deque<VersionRecord> versions;  // oldest first; the head is the last
  int64_t next_number = 1;

  // Of a session that forgets: what its root is named by, and what its forks' are.
  std::string chain;
  int64_t forget_at = 0;  // the head's tokens when it is looked at next

  // Writers in order of arrival; the first may run.
  std::list<WriterState*> line;
  int forks = 0;  // writers beside the line (kFork), which start from the head
  // Branches of it that are not parked.
  int live_branches = 0;
  int64_t pin_reserved = 0;  // pages that the running turn may pin in the end
  bool deleted = false;
  // Reserved by a kFork writer: no one sees it before its first version.
  bool reserved = false;
  // Made by allow_missing: gone with its last writer or fork unless a version came.
  bool provisional = false;

  Version head() const { return versions.empty() ? Version::kNone : versions.back().number; }
  int64_t tokens() const { return versions.empty() ? 0 : versions.back().tokens; }
  // Stays, however long since its last use.
  bool in_use() const { return reserved || forks > 0 || !line.empty(); }
  bool holds_kv() const {
    return !versions.empty() && versions.back().claim.kind() == Claim::Kind::kStrong;
  }
  // The lower, the sooner its head's KV is given up. That of a running turn's goes last:
  // what the turn builds on is its branch's, too, so only the rest goes, which matters
  // no more once the turn commits.
  std::tuple<bool, bool, absl::Duration> retire_order() const {
    return {live_branches > 0, !line.empty(), last_use};
  }
};

class WriterState {
 public:
  WriteIntent intent;
  std::shared_ptr<Session> session;
  std::shared_ptr<Session> fork;  // kFork: where the turn commits
  std::string fork_id;
  bool started = false;  // Checkout succeeded
  bool committed = false;
};

class StoreState {
 public:
  StoreState(const StoreOptions& store_options, ops::Backend* store_backend,
             base::Clock* store_clock, base::Observer* store_observer);
  ~StoreState();

  const StoreOptions options;
  ops::Backend* const backend;
  base::Clock* const clock;
  base::Observer* const observer;
  const RootNamer namer;

  // Held for a short time only: never over a call to the backend.
  mutable base::Mutex mu;

  using SessionKey = std::pair<std::string, std::string>;  // principal, id
  std::map<SessionKey, std::shared_ptr<Session>> sessions ABSL_GUARDED_BY(mu);
  std::vector<BranchState*> branches ABSL_GUARDED_BY(mu);
  PagePool pool ABSL_GUARDED_BY(mu);
  NodeTree tree ABSL_GUARDED_BY(mu);
  // Pages that branches hold beside the tree's.
  int64_t branch_pages ABSL_GUARDED_BY(mu) = 0;
  // Claims given up on any thread; the engine's lets go of them.
  std::vector<Claim> dead ABSL_GUARDED_BY(mu);
  // Sessions that may forget.
  std::set<Session*> grown ABSL_GUARDED_BY(mu);

  // nullptr: none that this principal may see.
  std::shared_ptr<Session> Find(absl::string_view principal, absl::string_view id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Makes a session without versions. An empty id: picks one.
  absl::StatusOr<std::shared_ptr<Session>> AddSession(absl::string_view principal,
                                                      absl::string_view id, const SessionSpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The same, to become a fork.
  absl::StatusOr<std::shared_ptr<Session>> AddFork(const Session& source, absl::string_view id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // What a test makes fail here; else OK.
  absl::Status Fault(FaultPoint point) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RemoveSession(Session* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Makes `record` the head; older versions hold weakly or go.
  void AddVersion(Session* session, VersionRecord record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The head if `version` is absent; nullptr: the session has none yet.
  absl::StatusOr<const VersionRecord*> FindVersion(const Session& session,
                                                   std::optional<int64_t> version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // VERSION_MISMATCH, which is counted, where another head is expected.
  absl::Status CheckExpected(const Session& session, std::optional<int64_t> expected) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  SessionInfo Info(const Session& session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Node* Root(const Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Of turns without a session.
  Node* Root(absl::string_view principal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // A strong claim on the first `end` tokens of a version and on their KV.
  Claim TakeCut(const VersionRecord& version, int64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // --- Engine thread. ---

  // Lets go of all dead claims and frees what nothing needs, a piece at a time.
  void Drain();
  // Forgets what sessions in `grown` no longer keep (history.cc).
  void Forget();
  // Deletes sessions that have been idle for too long.
  void DeleteIdle();
  // A piece of the same; false: nothing is left.
  bool DrainPiece() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Makes `pages` pages free for a turn of `principal`, or KV_POOL_FULL and
  // nothing changes. While a step is in flight, only for as many as are free already.
  absl::Status MakeRoom(int64_t pages, absl::string_view principal)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Makes the KV of a session's head, if there is one and it is not pinned, one that may
  // go under pressure.
  void GiveUpHead(Session* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  int64_t Obtainable(absl::string_view principal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  PageCounts CountPages() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // --- Pins and quotas (quotas.cc); any thread. Counts are of owned pages, each
  // once. ---

  // QUOTA_EXCEEDED where a session like this could pin nothing.
  absl::Status CheckPinQuota(absl::string_view principal, const SessionSpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // QUOTA_EXCEEDED where the target would pin too much; KV_POOL_FULL where it would
  // pin what a turn that was admitted may need.
  absl::Status CheckRollback(const Session& session, const VersionRecord& target)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Pinned or reserved by the principal's sessions but `except`.
  int64_t PinnedPages(absl::string_view principal, const Session* except)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  std::optional<int64_t> Quota(absl::string_view principal) const;
  // Of the sessions' heads together.
  int64_t CountHeads(absl::Span<const Session* const> held,
                     absl::Span<const Session* const> more = {}) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  TurnRoom RoomFor(const BranchState& branch, const Session* commits_to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // See SessionStore::Reserve. `commits_to`: nullptr if to no session that is there.
  absl::Status Reserve(BranchState* branch, Session* commits_to, const TurnRoom& room,
                       int64_t pages, int64_t pin_pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

 private:
  void Forget(Session* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Whether no branch needs what lies before `node`, or has it in part.
  bool CanCut(Node* node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Gives up the KV of a session outside `kept` for a turn of `principal`: first
  // of those whose principal is above its quota, then of those without a running
  // turn, then of those that no writer waits for, and each time of the one used
  // longest ago. Absent: none is left.
  std::optional<base::EvictionCause> RetireIdle(absl::string_view principal,
                                                const std::set<const Session*>& kept)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Of CheckRollback, for a pinned session.
  absl::Status CheckPin(const Session& session, const Claim& target)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Sessions that a turn of `principal` cannot take the KV of.
  std::set<const Session*> Kept(absl::string_view principal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Those of other principals that are within their quotas.
  std::vector<const Session*> Protected(absl::string_view principal)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Of a principal that has a quota: the sessions that are within it. Each counts
  // before those that would be given up sooner; one that is too large beside those
  // before it counts for nothing.
  std::vector<const Session*> Held(absl::string_view principal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // What pins of other sessions and others' quotas leave the branch; as if `target`
  // were the head of `changed`, where these are not nullptr.
  int64_t PagesLeft(const BranchState& branch, const Session* changed, const Claim* target)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Pages reserved beyond those that the session pins now.
  int64_t PinGrowth(const Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // No session is idle for too long before (monotonic).
  absl::Duration next_expiry_ ABSL_GUARDED_BY(mu) = absl::InfiniteDuration();
};

// INVALID_ARGUMENT, or FAILED_PRECONDITION (FEATURE_UNAVAILABLE) where the model's own
// layers do not allow it.
absl::Status CheckRetention(const RetentionPolicy& policy, const StoreOptions& options);

// What is left of a conversation whose tokens end at `end`.
Conversation CutConversation(const Conversation& conversation, int64_t end);
// The same without the messages that end before `first_position`, but for the last:
// it tells that the conversation has begun, and whether it is closed.
Conversation ForgetMessages(const Conversation& conversation, int64_t first_position);

// INVALID_ARGUMENT names the field of tokend.v1.Session that is wrong.
absl::Status ValidateSpec(const SessionSpec& spec, const StoreOptions& options);

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_STORE_STATE_H_
