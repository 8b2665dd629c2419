#include "core/kv/lead_in.h"

#include <algorithm>

namespace tokend::kv {

int64_t WindowBegin(const Layout& layout, int64_t end) {
  int64_t begin = end;
  for (const LayerGroup& group : layout.groups) {
    if (group.full()) continue;
    const ReachablePages reach = Reachable(group.mask, end, layout.page_tokens);
    begin = std::min(begin, reach.first_page * layout.page_tokens);
  }
  return begin;
}

LeadIn PlanLeadIn(const Layout& layout, int64_t end, const Survivors& survivors) {
  const int64_t window_begin = WindowBegin(layout, end);
  LeadIn plan = {.end = end};
  plan.store_begin.assign(layout.layers, end);
  plan.attend_begin.assign(layout.layers, end);
  int64_t next = end;  // attend_begin of the layer at hand
  int64_t sinks = 0;
  for (int layer = layout.layers - 1; layer >= 0; --layer) {
    const int group = layout.group_of_layer[layer];
    const ops::AttentionMask& mask = layout.groups[group].mask;
    plan.attend_begin[layer] = next;
    if (layout.groups[group].full()) {
      plan.store_begin[layer] = std::min(end, survivors.full_until[group]);
      next = std::min(next, plan.store_begin[layer]);
    } else if (next < end || (survivors.windows >> group & 1) == 0) {
      sinks = std::max(sinks, mask.sink_tokens);
      next = plan.store_begin[layer] = std::min(window_begin, next - (mask.window_tokens - 1));
    }
  }
  // The sinks' pages are computed apart; a page lies between.
  const int64_t sink_pages = (sinks + layout.page_tokens - 1) / layout.page_tokens;
  plan.start = next / layout.page_tokens > sink_pages ? next : 0;
  return plan;
}

}  // namespace tokend::kv
