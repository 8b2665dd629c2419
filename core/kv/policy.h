// Retention policies. A policy, on top of what a layer of the model sees anyway, is
// a mask: a pure function of (policy, layer, position). Eviction frees only what the mask can no
// longer reach, so the KV of a session is a function of its tokens, its policy and the model alone.
#ifndef TOKEND_CORE_KV_POLICY_H_
#define TOKEND_CORE_KV_POLICY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/kv/heavy_hitters.h"
#include "core/ops/step.h"

namespace tokend::kv {

struct RetentionPolicy {
  enum class Kind { kFull, kSlidingWindow, kLayered, kHeavyHitters };
  Kind kind = Kind::kFull;
  int64_t sink_tokens = 0;    // all but kFull: [0, context)
  int64_t window_tokens = 0;  // all but kFull: [1, context - sink_tokens]
  int32_t full_layers = 0;    // kLayered: [1, layers); the first so many see everything
  int32_t kept_pages = 0;     // kHeavyHitters: [0, context / page_tokens]
  int64_t epoch_tokens = 0;   // kHeavyHitters: a multiple of page_tokens

  bool operator==(const RetentionPolicy&) const = default;

  // Of a layer whose own window is the last `local_tokens` positions, the query's
  // included; 0: the layer is global. A sink that is in it and has left the
  // policy's window is seen across the closed gap, as in any other layer.
  // kHeavyHitters hides more than a mask can say.
  ops::AttentionMask Mask(int layer, int64_t local_tokens) const;
  HeavyHitters heavy_hitters() const {
    return {sink_tokens, window_tokens, kept_pages, epoch_tokens};
  }
};

// INVALID_ARGUMENT names the field of tokend.v1.Session that is out of its range.
absl::Status ValidateRetention(const RetentionPolicy& policy, int64_t context_tokens, int layers,
                               int page_tokens);

// Pages, from the first on, that hold sinks; 0 where a query at `position` or later
// sees none of them.
int32_t SinkPages(const ops::AttentionMask& mask, int64_t position, int page_tokens);

// Pages of one layer that a query at `position` or later can still reach:
// logical pages [0, sink_pages) and [first_page, ...). sink_pages is 0 where the
// two runs would touch, as ops::LayerKv wants it, or where no sink is seen any more.
struct ReachablePages {
  int32_t sink_pages = 0;
  int64_t first_page = 0;

  bool operator==(const ReachablePages&) const = default;
};

ReachablePages Reachable(const ops::AttentionMask& mask, int64_t position, int page_tokens);

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_POLICY_H_
