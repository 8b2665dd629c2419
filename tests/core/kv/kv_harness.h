#ifndef TOKEND_TESTS_CORE_KV_KV_HARNESS_H_
#define TOKEND_TESTS_CORE_KV_KV_HARNESS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/clock.h"
#include "core/base/observer.h"
#include "core/kv/session_store.h"
#include "tests/core/kv/store_audit.h"
#include "tests/support/fake_backend.h"
#include "tests/support/shadow_tags.h"

namespace tokend::kv {

inline constexpr int kVocabulary = 32;

using Tokens = std::vector<int32_t>;

// `count` tokens that depend on `seed` and their place.
Tokens SomeTokens(int count, int seed = 1);
Tokens Concat(const Tokens& a, const Tokens& b);

// Layers 3, page_tokens 4, 300 pages.
StoreOptions SmallOptions();

// Sums of what the store reports.
class CountingObserver : public base::Observer {
 public:
  void OnStep(const base::StepReport&) override {}
  void OnPrompt(int64_t, int64_t) override {}
  void OnGeneratedTokens(int64_t) override {}
  void OnFirstToken(absl::Duration) override {}
  void OnInterToken(absl::Duration) override {}
  void OnQueue(absl::Duration) override {}
  void OnRequestEnd(absl::string_view, absl::Duration) override {}
  void OnSessionOp(base::SessionOp op) override { ++ops[op]; }
  void OnVersionConflict() override { ++conflicts; }
  void OnPageCopies(int64_t pages) override { copies += pages; }
  void OnEvictedPages(base::EvictionCause cause, int64_t pages) override {
    evicted[cause] += pages;
  }
  void OnPrefixQuery(int64_t query_tokens, int64_t hit_tokens) override {
    queried += query_tokens;
    hits += hit_tokens;
  }
  void OnRecomputedTokens(int64_t tokens) override { recomputed += tokens; }

  std::map<base::SessionOp, int64_t> ops;
  std::map<base::EvictionCause, int64_t> evicted;
  int64_t conflicts = 0, copies = 0, queried = 0, hits = 0, recomputed = 0;
};

// A store over a FakeBackend, and turns on it as the engine runs them.
class KvHarness {
 public:
  explicit KvHarness(StoreOptions options = SmallOptions());

  SessionStore& store() { return *store_; }
  // For what it counts, and to make it fail. Steps go through tags().
  testing::FakeBackend& backend() { return backend_; }
  testing::ShadowTags& tags() { return tags_; }
  base::ManualClock& clock() { return clock_; }
  CountingObserver& observer() { return observer_; }
  const StoreOptions& options() const { return options_; }

  // Steps of at most `chunk` positions until `end` (0: all) are computed. The
  // last row's logits are held against a reference that knows tokens alone.
  absl::Status Compute(Branch* branch, int chunk = 64, int64_t end = 0);

  // A whole turn: append, match, compute all, commit. A turn with `keep` ends
  // the version there.
  absl::StatusOr<VersionInfo> Turn(absl::string_view session, const Tokens& input, int chunk = 64,
                                   std::optional<int64_t> keep = std::nullopt,
                                   std::optional<int64_t> from_position = std::nullopt);
  // What the last Turn's branch said at its end.
  const BranchStats& last_stats() const { return last_stats_; }

  // Takes all pages for a moment, so that no idle KV is left.
  absl::Status TakeAllPages();

  std::unique_ptr<Writer> Admit(
      absl::string_view session,
      WriteIntent::OnConflict on_conflict = WriteIntent::OnConflict::kQueue,
      std::optional<int64_t> expected_version = std::nullopt);
  absl::Status Create(absl::string_view id, const RetentionPolicy& retention = {},
                      absl::string_view principal = "p");
  // All tokens of the head (or the version).
  Tokens Read(absl::string_view id, std::optional<int64_t> version = std::nullopt);

  // What FakeBackend must compute for these tokens, or more, under the policy. Good
  // until the next call.
  const testing::FakeReference& Reference(const RetentionPolicy& policy, const Tokens& tokens);

  // Tokens [0, end) on the way to a node, or of a branch, those that were forgotten
  // included.
  Tokens AllTokens(Node* node, int64_t end);
  Tokens AllTokens(const Branch& branch, int64_t end);

  // Invariants, and the content of every resident page. Adds failures to the test.
  void Audit();
  // The session goes after so much idle time, and a second before it is still there.
  void ExpectExpiry(absl::string_view id, absl::Duration idle);
  // What is broken; empty: nothing.
  std::vector<std::string> Broken();
  StoreAudit audit() { return StoreAudit(store_.get()); }

 private:
  bool RowsAreRight(Node* node, int layer);

  StoreOptions options_;
  testing::FakeBackend backend_;
  testing::ShadowTags tags_;
  base::ManualClock clock_;
  CountingObserver observer_;
  std::unique_ptr<SessionStore> store_;
  BranchStats last_stats_;
  // By the node behind a gap: all tokens before it.
  absl::flat_hash_map<const Node*, Tokens> forgotten_;

  // A reference is kept for each token sequence that was asked for, found by a hash
  // of the policy and the tokens.
  absl::flat_hash_map<uint64_t, testing::FakeReference> references_;
  // Pages of nodes whose rows were held against the reference, and what they hold
  // since; by page.
  struct Seen {
    uint32_t generation = 0;
    int rows = 0;
    uint64_t checksum = 0;
  };
  std::vector<Seen> seen_;
};

// A value of an error's metadata; "absent" or "no reason" where there is none.
std::string Metadata(const absl::Status& status, absl::string_view key);

}  // namespace tokend::kv

#endif  // TOKEND_TESTS_CORE_KV_KV_HARNESS_H_
