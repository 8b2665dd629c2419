#include "core/kv/lead_in.h"

#include <algorithm>

namespace tokend::kv {

int64_t WindowBegin(const Layout& layout, int group, int64_t end) {
  return Reachable(layout.groups[group].mask, end, layout.page_tokens).first_page *
         layout.page_tokens;
}

int64_t WindowBegin(const Layout& layout, int64_t end) {
  int64_t begin = end;
  for (int g = 0; g < static_cast<int>(layout.groups.size()); ++g) {
    if (!layout.groups[g].full()) begin = std::min(begin, WindowBegin(layout, g, end));
  }
  return begin;
}

LeadIn PlanLeadIn(const Layout& layout, int64_t end, const Survivors& survivors) {
  LeadIn plan = {.end = end};
  plan.store_begin.assign(layout.layers, end);
  plan.attend_begin.assign(layout.layers, end);
  int64_t next = end;  // attend_begin of the layer at hand
  for (int layer = layout.layers - 1; layer >= 0; --layer) {
    const int group = layout.group_of_layer[layer];
    const ops::AttentionMask& mask = layout.groups[group].mask;
    plan.attend_begin[layer] = next;
    if (layout.groups[group].full()) {
      plan.store_begin[layer] = std::min(end, survivors.full_until[group]);
      next = std::min(next, plan.store_begin[layer]);
    } else if (next < end || (survivors.windows >> group & 1) == 0) {
      next = plan.store_begin[layer] =
          std::min(WindowBegin(layout, group, end), next - (mask.window_tokens - 1));
    }
  }
  // The sinks' pages are computed apart; a page lies between.
  plan.start = next / layout.page_tokens > layout.sink_pages ? next : 0;
  return plan;
}

int64_t ReceptiveField(const Layout& layout) {
  const int64_t end = (int64_t{1} << 40) * layout.page_tokens;
  return end - PlanLeadIn(layout, end, {}).start;
}

void SetHistory(int64_t history_tokens, int64_t look_back, Layout* layout) {
  const int64_t page = layout->page_tokens;
  // Work may resume up to a page before the position that a turn starts at.
  const int64_t lead = page + std::max(ReceptiveField(*layout), look_back);
  layout->lead_tokens = (lead + page - 1) / page * page;
  const int64_t history = std::min(history_tokens, int64_t{1} << 48);
  layout->keep_nodes = (history + page - 1) / page + layout->lead_tokens / page;
}

}  // namespace tokend::kv
