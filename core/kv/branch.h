// A turn's private, uncommitted continuation of a version.
#ifndef TOKEND_CORE_KV_BRANCH_H_
#define TOKEND_CORE_KV_BRANCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/kv/types.h"
#include "core/ops/step.h"

namespace tokend::kv {

struct BranchStats {
  int64_t cached_tokens = 0;      // of base and input: KV reused
  int64_t recomputed_tokens = 0;  // of the computed: KV that had been dropped
  int64_t evicted_tokens = 0;     // positions that left the window on this branch
};

// Positions run [0, tokens()). Those in [0, computed()) have their KV, or lie
// where no mask will look again. The last sampled token has none yet.
//
//   branch->Append(input);
//   branch->MatchPrefix();
//   while (branch->computed() < branch->tokens()) {
//     branch->Prepare(n);                      // pages for the next n positions
//     ... Forward over tokens [computed, computed + n) with layers() ...
//     branch->Advance(n);                      // they have KV now
//   }
//
// Engine thread only. Destroying it drops the turn: its pages are free at once.
class Branch {
 public:
  virtual ~Branch() = default;

  // "sessions/a/versions/3"; empty: a new session, or none.
  virtual std::string base_version_name() const = 0;
  virtual int64_t base_tokens() const = 0;
  virtual int64_t tokens() const = 0;
  virtual int64_t computed() const = 0;
  virtual const RetentionPolicy& retention() const = 0;
  virtual const Conversation& conversation() const = 0;

  virtual void Append(absl::Span<const int32_t> tokens) = 0;
  // The tokens of [begin, end), e.g. the next chunk or the penalty window. Only
  // those of this branch and the kept history of its base.
  virtual void ReadTokens(int64_t begin, int64_t end, std::vector<int32_t>* out) const = 0;

  // Lends every page whose tokens already match, up to the last token but one.
  // Once, after the input was appended.
  virtual void MatchPrefix() = 0;

  // Takes the pages that positions [computed, computed + count) of every layer
  // need, copying a shared tail page first. RESOURCE_EXHAUSTED (KV_POOL_FULL)
  // takes nothing.
  virtual absl::Status Prepare(int64_t count) = 0;

  // [number of layers], good until the next call that changes the branch. Valid
  // after Prepare for a step over the prepared positions.
  virtual absl::Span<const ops::LayerKv> layers() const = 0;

  // The step over the next `count` positions succeeded: full nodes enter the
  // prefix index, pages that left every mask are released.
  virtual void Advance(int64_t count) = 0;

  // Most pages that computing all of `tokens` positions can hold at once, for
  // admission.
  virtual int64_t PagesNeeded(int64_t tokens, int64_t chunk_tokens) const = 0;

  virtual BranchStats stats() const = 0;
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_BRANCH_H_
