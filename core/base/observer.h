// What the core tells the outside about its work; metrics/ turns it into
// Prometheus families. Calls are cheap and may come from any thread.
#ifndef TOKEND_CORE_BASE_OBSERVER_H_
#define TOKEND_CORE_BASE_OBSERVER_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tokend::base {

enum class SessionOp { kCreate, kGet, kList, kDelete, kFork, kRollback, kRead, kCommit, kDrop };
enum class EvictionCause { kWindow, kPressure, kIdle, kQuota };

// One step of the engine.
struct StepReport {
  absl::Duration duration;
  // Share of `duration` that went to rows of each kind, by token count.
  absl::Duration prefill;
  absl::Duration decode;
  int prefill_tokens = 0;
  int decode_tokens = 0;
};

class Observer {
 public:
  virtual ~Observer() = default;

  virtual void OnStep(const StepReport& report) = 0;
  // Prompt tokens of a turn, told once, when its prefill ends.
  virtual void OnPrompt(int64_t computed_tokens, int64_t cached_tokens) = 0;
  virtual void OnGeneratedTokens(int64_t tokens) = 0;
  // From admission to the first output token.
  virtual void OnFirstToken(absl::Duration since_admission) = 0;
  virtual void OnInterToken(absl::Duration since_previous) = 0;
  virtual void OnQueue(absl::Duration in_queue) = 0;
  // Once a request: `reason` is the FinishReason or the ErrorReason in lower
  // case, or "cancelled".
  virtual void OnRequestEnd(absl::string_view reason, absl::Duration since_admission) = 0;

  virtual void OnSessionOp(SessionOp op) = 0;
  virtual void OnVersionConflict() = 0;
  virtual void OnPageCopies(int64_t pages) = 0;
  virtual void OnEvictedPages(EvictionCause cause, int64_t pages) = 0;
  virtual void OnPrefixQuery(int64_t query_tokens, int64_t hit_tokens) = 0;
  virtual void OnRecomputedTokens(int64_t tokens) = 0;
};

// Ignores everything. Lives as long as the process.
Observer* NullObserver();

}  // namespace tokend::base

#endif  // TOKEND_CORE_BASE_OBSERVER_H_
