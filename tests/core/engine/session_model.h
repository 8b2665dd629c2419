// What clients asked of sessions and were told, and a plain model of sessions that
// says whether the answers make sense in a given order.
#ifndef TOKEND_TESTS_CORE_ENGINE_SESSION_MODEL_H_
#define TOKEND_TESTS_CORE_ENGINE_SESSION_MODEL_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/engine/request.h"

namespace tokend::testing {

using Tokens = std::vector<int32_t>;

// One call of a client, all of one principal, and its answer. Times are those of
// one counter that orders what any two clients did.
struct SessionCall {
  enum Kind { kCreate, kDelete, kFork, kRollback, kGet, kRead, kTurn };
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  Kind kind = kGet;
  std::string session;
  std::optional<int64_t> version;  // kFork, kRollback, kRead
  std::optional<int64_t> expected_version;
  std::optional<int64_t> position;  // kFork: its end; kTurn: from_position
  bool allow_missing = false;
  std::string new_session;  // kFork
  engine::OnConflict on_conflict = engine::OnConflict::kQueue;
  engine::CommitMode commit = engine::CommitMode::kOnFinish;
  Tokens input;
  int32_t max_output = 0;
  // What others asked to keep of this turn's output when they stopped it.
  std::vector<int32_t> keeps;

  int64_t invoked = 0;
  // Of a turn: when the client knew that it was admitted, and that it had started.
  int64_t admitted = kNever;
  int64_t began = kNever;
  int64_t returned = kNever;
  // The answer never came, or was CANCELLED: the call may have had its effect, may
  // have it later, or never.
  bool lost = false;
  absl::Status status;

  // Of kCreate, kFork, kRollback and kGet.
  std::string uid;
  int64_t head = 0;  // also of kRead
  int64_t total_tokens = 0;
  int32_t active_turns = 0;
  Tokens tokens;  // of kRead; of kTurn the output

  // Of kTurn, as far as the client was told.
  std::optional<engine::Started> started;
  std::optional<engine::Finished> finished;

  // The session that the turn was told it becomes; empty: none.
  std::string fork_name() const;
  std::string ToString() const;
};

struct SessionModelOptions {
  int max_versions = 4;
  int layers = 3;  // of the fake backend
  int vocabulary_size = 0;
};

// Token vectors, each kept once, and what the fake backend says after them.
class TokenPool {
 public:
  explicit TokenPool(const SessionModelOptions& options) : options_(options) {}

  const SessionModelOptions& options() const { return options_; }
  const Tokens* Get(Tokens tokens) { return &replies_.try_emplace(std::move(tokens)).first->first; }
  // The next `count` tokens, drawn greedily.
  Tokens Reply(const Tokens& tokens, int count);

 private:
  const SessionModelOptions options_;
  std::map<Tokens, Tokens> replies_;  // as far as they were asked for
};

// Sessions as plain token vectors, and the turns that are under way.
class SessionModel {
 public:
  // `calls`: of how many it will see steps.
  SessionModel(TokenPool* pool, size_t calls) : pool_(pool), phases_(calls, kNone) {}

  // A call takes effect in one or more steps, each at one instant: a turn enters its
  // session's line, reads its base, commits, and leaves. All states to which the
  // next step of call `index` may lead, given its answer; none: it cannot be now.
  std::vector<SessionModel> Step(int index, const SessionCall& call) const;
  // Whether it took its last step.
  bool IsDone(int index) const { return phases_[static_cast<size_t>(index)] == kDone; }
  // When it must have taken its next step; kNever: perhaps it never does.
  int64_t Deadline(int index, const SessionCall& call) const;
  // A good guess.
  int64_t Guess(int index, const SessionCall& call) const;
  // Differs where a later step can tell two states apart.
  std::string Key() const;

 private:
  // Of a call; those between the first and the last are a turn's.
  enum Phase : char { kNone, kWaiting, kRunning, kCommitted, kRefused, kDone };
  struct Version {
    int64_t number = 0;
    const Tokens* tokens = nullptr;
  };
  struct Session {
    int incarnation = 0;
    std::string uid;  // empty: nobody was told yet
    bool reserved = false;
    bool provisional = false;
    int64_t next_number = 1;
    std::vector<Version> versions;  // the retained ones
    std::vector<int> line;          // turns, by arrival

    int64_t head() const { return versions.empty() ? 0 : versions.back().number; }
  };
  struct Turn {
    int incarnation = 0;  // of the session
    // Under kFork beside another; else 0 and empty.
    int fork_incarnation = 0;
    std::string fork;
    int64_t base_number = 0;
    const Tokens* prompt = nullptr;  // base and input
    bool must_commit = false;
    bool may_commit = false;
  };
  using States = std::vector<SessionModel>;

  char& phase(int index) { return phases_[static_cast<size_t>(index)]; }
  Session* Find(const std::string& name);  // nullptr: missing or reserved
  Session* Alive(const std::string& name, int incarnation);
  absl::Status CanAdd(const std::string& name) const;
  Session& Add(const std::string& name);
  void AddVersion(Session* session, const Tokens* tokens);
  absl::Status FindVersion(const std::string& name, const Session& session,
                           std::optional<int64_t> number, const Version** found) const;
  const Tokens* TokensOf(const Session& session);
  static bool Tell(const std::string& uid, Session* session);
  bool Knows(const SessionCall& call, Session* session);

  // What the call is answered, changing the state; `fits`: whether the values of
  // its good answer do.
  absl::Status Answer(const SessionCall& call, bool* fits);
  absl::Status Delete(const SessionCall& call);
  absl::Status Fork(const SessionCall& call, bool* fits);
  absl::Status Rollback(const SessionCall& call, bool* fits);
  absl::Status Read(const SessionCall& call, bool* fits);

  States Enter(int index, const SessionCall& call) const;
  absl::Status EnterLine(int index, const SessionCall& call);
  bool MayStartThere(int index, const SessionCall& call) const;
  void Start(int index, const SessionCall& call, States* states) const;
  bool StartFits(const Turn& turn, const SessionCall& call, const Session& source, int64_t base);
  void Commit(int index, const SessionCall& call, States* states) const;
  void Leave(int index, const SessionCall& call, States* states) const;
  bool MayLeave(int index, const SessionCall& call);

  TokenPool* pool_;
  std::string phases_;  // [calls]
  int next_incarnation_ = 1;
  std::map<std::string, Session> sessions_;
  std::map<int, Turn> turns_;  // by call, those under way
};

// Whether the calls can be put into one order, each between its invocation and its
// answer, in which the model gives these answers (Herlihy and Wing 1990,
// "Linearizability"; the search is Wing and Gong's, with Lowe's memory of states).
// Empty: they can; else what stands in the way, or, behind `most` states, kGaveUp first:
// then it is not known.
inline constexpr absl::string_view kGaveUp = "gave up";
std::string CheckLinearizable(const SessionModelOptions& options,
                              const std::vector<SessionCall>& calls, int64_t most = 200'000);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_CORE_ENGINE_SESSION_MODEL_H_
