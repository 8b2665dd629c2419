// Runs programs; see program.h.
#ifndef TOKEND_TESTS_CORE_KV_INTERPRETER_H_
#define TOKEND_TESTS_CORE_KV_INTERPRETER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "tests/core/kv/kv_harness.h"
#include "tests/core/kv/program.h"

namespace tokend::kv {

struct ModelVersion {
  Tokens tokens;
  int64_t parent = 0;
  int64_t first_position = 0;
};

struct ModelSession {
  RetentionPolicy policy;
  std::optional<absl::Duration> idle_ttl;
  bool pinned = false;
  int64_t history = 0;
  std::map<int64_t, ModelVersion> versions;  // retained
  int64_t head = 0;
  int64_t next = 1;
  std::string uid;
  bool provisional = false;
  absl::Duration last_use;

  Tokens tokens() const { return head == 0 ? Tokens() : versions.at(head).tokens; }
  int64_t first_position() const { return head == 0 ? 0 : versions.at(head).first_position; }
};

using Name = std::pair<std::string, std::string>;  // principal, id

// A writer and its branches, of which the first to commit wins.
struct OpenWriter {
  std::unique_ptr<Writer> writer;
  int64_t order = 0;  // of admission
  Name name;
  std::string uid;       // of the session when the writer was admitted
  std::string fork_id;   // kFork
  std::string fork_uid;  // once it has committed
};

struct OpenTurn {
  std::shared_ptr<OpenWriter> writer;  // nullptr: ephemeral
  std::unique_ptr<Branch> branch;      // nullptr: not checked out
  std::string principal;               // once it is
  Tokens tokens;
  int64_t base = 0;
  int64_t first_position = 0;
  int64_t history = 0;
  RetentionPolicy policy;
  bool matched = false;
  int64_t prepared_end = 0;
};

class Interpreter {
 public:
  explicit Interpreter(const ProgramOptions& options);

  // Runs one operation and checks everything. False: something is wrong.
  bool Run(const Op& op);
  // After the last: with all sessions gone no page is left.
  void Finish();

  // What went wrong first; empty: nothing.
  const std::string& what() const { return what_; }
  const std::string& detail() const { return detail_; }
  Coverage coverage();

 private:
  SessionStore& store() { return harness_.store(); }
  absl::Duration now() { return harness_.clock().Monotonic(); }
  absl::Status OnFault(FaultPoint point);
  // Whether `status` is the fault that was asked for.
  bool IsFault(const absl::Status& status);
  void Expect(bool ok, absl::string_view what, absl::string_view detail = "");
  void ExpectOk(const absl::Status& status, absl::string_view what);
  void ExpectReason(const absl::Status& status, base::ErrorReason reason, absl::string_view what);

  Name NameOf(int operand) const;
  ModelSession* FindModel(const Name& name);
  ModelSession* FindModel(const OpenWriter& writer);  // if it is that incarnation
  OpenTurn* TurnOf(int operand);
  int Active(const Name& name, const std::string& uid) const;
  bool InUse(const Name& name, const std::string& uid) const;  // by writers or forks
  int Reserved() const;
  bool AtLimit() const;
  // Whether `pages` more than are pinned by sessions but `name` break its principal's
  // quota.
  bool OverQuota(const Name& name, int64_t pages);
  bool Ready(const OpenWriter& writer);
  void AddVersion(ModelSession* session, Tokens tokens, int64_t parent, int64_t first_position);
  // What the store may have forgotten, and no more.
  void Forget();
  void CheckForgotten(int64_t history, int64_t tokens, int64_t now, int64_t* first_position);

  // True: the operation had something to work on.
  bool Do(const Op& op);
  bool Create(const Op& op);
  bool Fork(const Op& op);
  bool Rollback(const Op& op);
  bool Delete(const Op& op);
  bool Read(const Op& op);
  void Maintain();
  bool Admit(const Op& op);
  bool Checkout(const Op& op);
  bool Beside(const Op& op);
  void Open(const Op& op, OpenTurn turn);
  bool Ephemeral(const Op& op);
  void Begin(const Op& op, OpenTurn* turn);
  bool Step(const Op& op);
  enum class Room { kYes, kNo, kBroken };
  Room Prepare(OpenTurn* turn, int64_t count);
  void CheckBound(const OpenTurn& turn, int64_t count);
  bool Draw(const Op& op);
  bool Park(const Op& op);
  bool Commit(const Op& op);
  void CommitFork(OpenTurn* turn, const absl::StatusOr<VersionInfo>& version);
  bool Drop(const Op& op);
  OpenTurn Take(int operand);
  // Leaves the writer's line with its last branch.
  void Leave(OpenTurn turn);
  void Plant();
  void CheckModel();
  void CheckVersions(const Name& name, const ModelSession& session);
  void CheckTokens(const Name& name, const ModelSession& session);

  const ProgramOptions options_;
  Coverage coverage_;
  std::string what_;
  std::string detail_;
  int64_t operations_ = 0;
  int countdown_ = 0;  // calls until `point_` fails; 0: never
  FaultPoint point_ = FaultPoint::kTakePages;
  int publishes_ = 0;
  KvHarness harness_;
  std::map<Name, ModelSession> sessions_;
  std::vector<Name> forks_;  // that kFork made, oldest first
  std::vector<OpenTurn> turns_;
  int64_t admitted_ = 0;
};

// Inside of Interpreter: fails the program, and names the condition.
#define HOLDS(condition) Expect(static_cast<bool>(condition), #condition)

// An operand as something that may be absent: 0.
inline std::optional<int64_t> Maybe(int operand) {
  return operand == 0 ? std::nullopt : std::optional<int64_t>(operand - 1);
}
RetentionPolicy PolicyOf(int operand);
// Few distinct pieces, so that prefixes meet.
Tokens InputOf(int operand);

}  // namespace tokend::kv

#endif  // TOKEND_TESTS_CORE_KV_INTERPRETER_H_
