#ifndef TOKEND_TESTS_CORE_KV_KV_HARNESS_H_
#define TOKEND_TESTS_CORE_KV_KV_HARNESS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/observer.h"
#include "core/kv/session_store.h"
#include "tests/core/kv/store_audit.h"
#include "tests/support/fake_backend.h"

namespace tokend::kv {

inline constexpr int kVocabulary = 32;

using Tokens = std::vector<int32_t>;

// `count` tokens that depend on `seed` and their place.
Tokens SomeTokens(int count, int seed = 1);
Tokens Concat(const Tokens& a, const Tokens& b);

// Layers 3, page_tokens 4, 300 pages.
StoreOptions SmallOptions();

// A store over a FakeBackend, and turns on it as the engine runs them.
class KvHarness {
 public:
  explicit KvHarness(StoreOptions options = SmallOptions());

  SessionStore& store() { return *store_; }
  testing::FakeBackend& backend() { return backend_; }
  base::ManualClock& clock() { return clock_; }
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

  std::unique_ptr<Writer> Admit(
      absl::string_view session,
      WriteIntent::OnConflict on_conflict = WriteIntent::OnConflict::kQueue,
      std::optional<int64_t> expected_version = std::nullopt);
  absl::Status Create(absl::string_view id, const RetentionPolicy& retention = {},
                      absl::string_view principal = "p");
  // All tokens of the head (or the version).
  Tokens Read(absl::string_view id, std::optional<int64_t> version = std::nullopt);

  // Invariants, and the content of every resident page. Adds failures to the test.
  void Audit();
  StoreAudit audit() { return StoreAudit(store_.get()); }

 private:
  StoreOptions options_;
  testing::FakeBackend backend_;
  base::ManualClock clock_;
  std::unique_ptr<SessionStore> store_;
  BranchStats last_stats_;
};

}  // namespace tokend::kv

#endif  // TOKEND_TESTS_CORE_KV_KV_HARNESS_H_
