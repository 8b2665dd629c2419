#include "core/kv/policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace tokend::kv {
namespace {

absl::Status OutOfRange(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  return base::InvalidField(absl::StrCat("session.retention.", field),
                            absl::StrCat(value, " is not in [", low, ", ", high, "]"));
}

}  // namespace

ops::AttentionMask RetentionPolicy::Mask(int layer, int64_t local_tokens) const {
  const bool full = kind == Kind::kFull || kind == Kind::kHeavyHitters ||
                    (kind == Kind::kLayered && layer < full_layers);
  if (full) return {.window_tokens = local_tokens};
  // Sinks that a window of `local_tokens` holds are in it like any other token.
  if (local_tokens > 0 && local_tokens <= window_tokens) return {.window_tokens = local_tokens};
  return {.sink_tokens = sink_tokens,
          .window_tokens = window_tokens,
          .sink_reach = sink_tokens > 0 ? local_tokens : 0};
}

absl::Status ValidateRetention(const RetentionPolicy& policy, int64_t context_tokens, int layers,
                               int page_tokens) {
  if (policy.kind == RetentionPolicy::Kind::kFull) return absl::OkStatus();
  const bool layered = policy.kind == RetentionPolicy::Kind::kLayered;
  const bool heavy = policy.kind == RetentionPolicy::Kind::kHeavyHitters;
  const absl::string_view window = layered ? "layered.window"
                                   : heavy ? "heavy_hitters"
                                           : "sliding_window";
  if (layered && (policy.full_layers < 1 || policy.full_layers >= layers)) {
    return OutOfRange("layered.full_layers", policy.full_layers, 1, layers - 1);
  }
  if (policy.sink_tokens < 0 || policy.sink_tokens >= context_tokens) {
    return OutOfRange(absl::StrCat(window, ".sink_tokens"), policy.sink_tokens, 0,
                      context_tokens - 1);
  }
  const int64_t most = context_tokens - policy.sink_tokens;
  if (policy.window_tokens < 1 || policy.window_tokens > most) {
    return OutOfRange(absl::StrCat(window, ".window_tokens"), policy.window_tokens, 1, most);
  }
  if (!heavy) return absl::OkStatus();
  if (policy.kept_pages < 0 || policy.kept_pages > context_tokens / page_tokens) {
    return OutOfRange("heavy_hitters.kept_pages", policy.kept_pages, 0,
                      context_tokens / page_tokens);
  }
  if (policy.epoch_tokens < 1 || policy.epoch_tokens % page_tokens != 0) {
    return base::InvalidField(
        "session.retention.heavy_hitters.epoch_tokens",
        absl::StrCat(policy.epoch_tokens, " is no multiple of the page size, ", page_tokens));
  }
  return absl::OkStatus();
}

int32_t SinkPages(const ops::AttentionMask& mask, int64_t position, int page_tokens) {
  if (!mask.SeesSinks(position)) return 0;
  return static_cast<int32_t>((mask.SinkEnd() + page_tokens - 1) / page_tokens);
}

ReachablePages Reachable(const ops::AttentionMask& mask, int64_t position, int page_tokens) {
  const int64_t first_page = mask.WindowBegin(position) / page_tokens;
  const int32_t sink_pages = SinkPages(mask, position, page_tokens);
  if (first_page <= sink_pages) return {};
  return {.sink_pages = sink_pages, .first_page = first_page};
}

}  // namespace tokend::kv
