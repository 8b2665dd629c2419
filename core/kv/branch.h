// A turn's private, uncommitted continuation of a version.
#ifndef TOKEND_CORE_KV_BRANCH_H_
#define TOKEND_CORE_KV_BRANCH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/kv/types.h"
#include "core/ops/step.h"

namespace tokend::kv {

class BranchState;

struct BranchStats {
  int64_t cached_tokens = 0;      // of base and input, and not hidden: KV reused
  int64_t recomputed_tokens = 0;  // of base, input and output: KV that had been dropped
  int64_t evicted_tokens = 0;     // positions that left the window on this branch
};

// Positions run [0, tokens()). Those in [0, computed()) have their KV, or lie
// where no mask will look again. The last sampled token has none yet.
//
//   branch->Append(input);
//   branch->MatchPrefix();
//   while (branch->computed() < branch->tokens()) {
//     n = min(n, branch->step_rows());
//     branch->Prepare(n);                      // pages for the next n positions
//     ... a step over tokens [computed, computed + n) with layers() ...
//     branch->Advance(n);                      // they have KV now
//   }
//
// Where dropped KV of a windowed session is computed again, computed() first goes
// through the sinks and then jumps to the first token that still matters.
//
// Engine thread only; the store outlives it. Destroying it drops the turn: at
// once, what it alone owned is free or, where the prefix index holds it, cached.
class Branch {
 public:
  explicit Branch(std::unique_ptr<BranchState> state);
  ~Branch();
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  // "sessions/a/versions/3"; empty: a new session, or none.
  const std::string& base_version_name() const;
  // After the cut, where there is one.
  int64_t base_tokens() const;
  int64_t tokens() const;
  // Of the base; tokens before it are forgotten. Changes with SessionStore::Maintain.
  int64_t first_position() const;
  // 0 before MatchPrefix.
  int64_t computed() const;
  // From MatchPrefix on: how many of the next positions one step may take; never
  // 0 while computed() < tokens().
  int64_t step_rows() const;
  const RetentionPolicy& retention() const;
  // The base's, cut where it was cut. May be null.
  const Conversation& conversation() const;

  // Takes memory for `tokens` tokens in all, so that computing them takes none.
  void Reserve(int64_t tokens);
  void Append(absl::Span<const int32_t> tokens);
  // The tokens of [begin, end), e.g. the next chunk or the penalty window.
  // Appended to `out`. Any from first_position() on, those that are to be computed, and
  // StoreOptions::look_back_tokens before any of these.
  void ReadTokens(int64_t begin, int64_t end, std::vector<int32_t>* out) const;

  // Lends every page whose tokens already match, the base's own ones included,
  // up to the last token but one. Once, after the input was appended and before
  // the first Prepare; and once after each Park.
  void MatchPrefix();

  // Takes the pages that positions [computed, computed + count) of every layer
  // need, copying a shared tail page first. RESOURCE_EXHAUSTED (KV_POOL_FULL,
  // without a retry hint where it can never fit) takes nothing; a failed copy
  // is the backend's error. Positions that are prepared already cost nothing, and
  // those behind step_rows() get nothing.
  absl::Status Prepare(int64_t count);

  // While a step over the last token is in flight, which will give the next one: makes
  // layers() serve a step over position tokens(), too. Takes free pages alone, from
  // nobody. False: that step has to wait for the token. Advance and what may be
  // committed know nothing of such a step until Append and Advance tell of it.
  bool PrepareAhead();

  // [number of layers], good until the next call that changes the branch. Valid
  // after Prepare for a step over the prepared positions.
  absl::Span<const ops::LayerKv> layers() const;

  // The step over the next `count` positions, all prepared, succeeded: full
  // nodes enter the prefix index, pages that left every mask are released.
  void Advance(int64_t count);

  // Most pages, beyond those that it holds now, that computing `tokens`
  // positions in steps of at most `chunk_tokens` can take at once. Ask after
  // MatchPrefix; the answers of all running branches add up against
  // SessionStore::ObtainablePages().
  int64_t PagesNeeded(int64_t tokens, int64_t chunk_tokens) const;
  // The same if it held none yet.
  int64_t PagesInAll(int64_t tokens, int64_t chunk_tokens) const;
  // The same with what its session's pinned head has beside it until the turn commits.
  int64_t PagesBesideHead(int64_t tokens, int64_t chunk_tokens) const;

  // Gives up all KV: what no one else owns is free or, where the prefix index
  // holds it, cached, and the session's own KV counts as idle. The tokens stay;
  // MatchPrefix resumes. computed() is 0 meanwhile. A parked branch may be
  // committed.
  void Park();
  bool parked() const;

  BranchStats stats() const;

 private:
  friend class SessionStore;
  friend class StoreAudit;
  std::unique_ptr<BranchState> state_;
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_BRANCH_H_
