// What must be computed again where a windowed session's KV was dropped.
#ifndef TOKEND_CORE_KV_LEAD_IN_H_
#define TOKEND_CORE_KV_LEAD_IN_H_

#include <array>
#include <cstdint>
#include <vector>

#include "core/kv/layout.h"

namespace tokend::kv {

// KV that is still there, by group.
struct Survivors {
  // Full groups: positions before it, a multiple of page_tokens.
  std::array<int64_t, kMaxGroups> full_until = {};
  // Windowed groups, bit g: all positions of [WindowBegin(g), end).
  uint32_t windows = 0;
};

// A run over the tokens of [start, end) after which every layer has the KV that a
// query at `end` or later can reach, exactly as a run from token 0 would leave it.
// Keys and values of a layer depend on the layer below, that one's on what its own
// window reaches, and so on; so going down from the top, each windowed layer needs
//   store_begin[l] = attend_begin[l] - (window - 1),  attend_begin[l - 1] = store_begin[l].
// Rows before attend_begin[l] would be wrong above layer l and end there (see
// ops::LayerKv). Layers whose KV survives are read alone and widen nothing.
struct LeadIn {
  int64_t start = 0;  // 0: there is none that saves anything
  int64_t end = 0;
  std::vector<int64_t> store_begin;   // [layers]; `end`: stores nothing
  std::vector<int64_t> attend_begin;  // [layers]
};

// First position, a multiple of page_tokens, whose KV the layers of a windowed group
// want for queries at `end` or later, sinks aside; and that of all such groups.
int64_t WindowBegin(const Layout& layout, int group, int64_t end);
int64_t WindowBegin(const Layout& layout, int64_t end);

// Most tokens before a multiple of page_tokens, far from the sinks, that the KV which
// is reached from there depends on, sinks aside. No layer sees all.
int64_t ReceptiveField(const Layout& layout);

// Lets chains forget tokens but for the newest `history_tokens` of each version, and
// for what a turn on any of these needs: the receptive field and `look_back` tokens.
void SetHistory(int64_t history_tokens, int64_t look_back, Layout* layout);

// `end` is a multiple of page_tokens.
LeadIn PlanLeadIn(const Layout& layout, int64_t end, const Survivors& survivors);

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_LEAD_IN_H_
