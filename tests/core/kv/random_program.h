// Random programs: operations on a store and, beside it, on a model that keeps
// plain token vectors.
#ifndef TOKEND_TESTS_CORE_KV_RANDOM_PROGRAM_H_
#define TOKEND_TESTS_CORE_KV_RANDOM_PROGRAM_H_

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {

struct ModelVersion {
  Tokens tokens;
  int64_t parent = 0;
};

struct ModelSession {
  RetentionPolicy policy;
  std::map<int64_t, ModelVersion> versions;  // retained
  int64_t head = 0;
  int64_t next = 1;
  std::string uid;
  bool provisional = false;

  Tokens tokens() const { return head == 0 ? Tokens() : versions.at(head).tokens; }
  void Add(Tokens tokens, int64_t parent, int max_versions) {
    head = next++;
    versions[head] = {std::move(tokens), parent};
    if (static_cast<int>(versions.size()) > max_versions) versions.erase(versions.begin());
  }
};

using Name = std::pair<std::string, std::string>;  // principal, id

struct OpenTurn {
  Name name;
  std::string uid;  // of the session when the turn was admitted
  std::unique_ptr<Writer> writer;
  std::unique_ptr<Branch> branch;
  Tokens tokens;
  int64_t base = 0;
  RetentionPolicy policy;
  bool matched = false;
};

class Program {
 public:
  Program(uint32_t seed, const StoreOptions& options) : random_(seed), harness_(options) {}

  void Run(int operations, bool scarce);

 private:
  // A program that never gets there proves little. The seeds below do.
  void CheckCoverage(bool scarce);
  SessionStore& store() { return harness_.store(); }
  int Below(int n) { return static_cast<int>(random_() % n); }
  bool Chance(int percent) { return Below(100) < percent; }
  int MaxVersions() const { return harness_.options().max_versions; }

  // Few distinct pieces, so that prefixes meet.
  Tokens Input();
  RetentionPolicy Policy();
  Name AnyName() { return {Chance(70) ? "p" : "q", absl::StrCat("s", Below(5))}; }
  ModelSession* FindModel(const Name& name) {
    const auto found = sessions_.find(name);
    return found == sessions_.end() ? nullptr : &found->second;
  }
  int Active(const Name& name, const std::string& uid);
  void Operation();
  void CreateSession();
  void Admit();
  void Checkout();
  void Checkout(OpenTurn* turn);
  void Ephemeral();
  void Begin(OpenTurn* turn);
  // One step over some of the open turns.
  void StepSome();
  // False: no room, or the copy failed; then the turn is to be dropped.
  bool Prepare(OpenTurn* turn, int64_t count);
  void Park();
  void EndTurn();
  // A session that a turn made is gone with its last turn, unless one committed.
  void Leave(OpenTurn* turn);
  void Commit(OpenTurn* turn, const std::string& fork_id);
  void Fork();
  void Rollback();
  void Delete();
  void ReadSome();
  void CheckModel();
  std::mt19937 random_;
  KvHarness harness_;
  std::map<Name, ModelSession> sessions_;
  std::vector<OpenTurn> turns_;
  int step_ = 0;
  int refused_ = 0;
  int parked_ = 0;
};

}  // namespace tokend::kv

#endif  // TOKEND_TESTS_CORE_KV_RANDOM_PROGRAM_H_
