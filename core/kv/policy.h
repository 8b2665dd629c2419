// Retention policies. A policy is a mask: a pure function of (policy, layer,
// position). Eviction frees only what the mask can no longer reach, so the KV of
// a session is a function of its tokens, its policy and the model alone.
#ifndef TOKEND_CORE_KV_POLICY_H_
#define TOKEND_CORE_KV_POLICY_H_

#include <cstdint>

#include "core/ops/step.h"

namespace tokend::kv {

struct RetentionPolicy {
  enum class Kind { kFull, kSlidingWindow };
  Kind kind = Kind::kFull;
  int64_t sink_tokens = 0;    // kSlidingWindow: [0, context)
  int64_t window_tokens = 0;  // kSlidingWindow: [1, context - sink_tokens]

  bool operator==(const RetentionPolicy&) const = default;

  ops::AttentionMask Mask(int layer) const;
};

// Pages of one layer that a query at `position` or later can still reach:
// logical pages [0, sink_pages) and [first_page, ...).
struct ReachablePages {
  int32_t sink_pages = 0;
  int64_t first_page = 0;
};

ReachablePages Reachable(const ops::AttentionMask& mask, int64_t position, int page_tokens);

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_POLICY_H_
