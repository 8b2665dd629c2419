#include "core/kv/layout.h"

#include <algorithm>

#include "core/base/check.h"

namespace tokend::kv {

Layout MakeLayout(const RetentionPolicy& policy, absl::Span<const int64_t> local_windows,
                  int page_tokens) {
  const auto layers = static_cast<int>(local_windows.size());
  Layout layout = {.policy = policy, .layers = layers, .page_tokens = page_tokens};
  for (int layer = 0; layer < layers; ++layer) {
    const ops::AttentionMask mask = policy.Mask(layer, local_windows[layer]);
    auto group = std::find_if(layout.groups.begin(), layout.groups.end(),
                              [&](const LayerGroup& other) { return other.mask == mask; });
    if (group == layout.groups.end()) {
      TOKEND_CHECK(layout.groups.size() < kMaxGroups);
      group = layout.groups.insert(group, LayerGroup{.mask = mask, .layers = {}});
    }
    group->layers.push_back(layer);
    layout.group_of_layer.push_back(static_cast<int>(group - layout.groups.begin()));
  }
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const ops::AttentionMask& mask = layout.groups[g].mask;
    if (layout.groups[g].full()) layout.full_groups |= 1u << g;
    layout.sink_pages =
        std::max(layout.sink_pages,
                 static_cast<int32_t>((mask.sink_tokens + page_tokens - 1) / page_tokens));
  }
  return layout;
}

int64_t HiddenPositions(const Layout& layout, int64_t position) {
  int64_t window_begin = position;
  int64_t sink_begin = position;
  int64_t sink_end = 0;
  for (const LayerGroup& group : layout.groups) {
    window_begin = std::min(window_begin, group.mask.WindowBegin(position));
    if (!group.mask.SeesSinks(position)) continue;
    sink_begin = std::min(sink_begin, group.mask.SinkBegin(position));
    sink_end = std::max(sink_end, group.mask.SinkEnd());
  }
  return window_begin - std::max<int64_t>(0, std::min(sink_end, window_begin) - sink_begin);
}

void ResumeScan::StartAt(int64_t position) {
  nodes_ = position / layout_.page_tokens;
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    first_[g] = Reachable(layout_.groups[g].mask, position, layout_.page_tokens).first_page;
  }
}

void ResumeScan::SkipTo(int64_t nodes, uint32_t sinks) {
  nodes_ = nodes;
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    first_[g] = nodes;
    sinks_missing_[g] = (sinks >> g & 1) == 0;
  }
}

void ResumeScan::Add(uint32_t whole) {
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    if ((whole >> g & 1) != 0) continue;
    const LayerGroup& group = layout_.groups[g];
    if (group.full()) {
      hopeless_ = true;
    } else {
      first_[g] = nodes_ + 1;
      if (nodes_ * layout_.page_tokens < group.mask.sink_tokens) sinks_missing_[g] = true;
    }
  }
  ++nodes_;
}

bool ResumeScan::CanResume(int64_t position) const {
  if (hopeless_) return false;
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    const LayerGroup& group = layout_.groups[g];
    if (group.full()) continue;
    const ReachablePages reach = Reachable(group.mask, position, layout_.page_tokens);
    if (first_[g] > reach.first_page) return false;
    if (reach.sink_pages > 0 && sinks_missing_[g]) return false;
  }
  return true;
}

}  // namespace tokend::kv
