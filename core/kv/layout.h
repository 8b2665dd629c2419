// The layers of a model grouped by what they see under a retention policy.
#ifndef TOKEND_CORE_KV_LAYOUT_H_
#define TOKEND_CORE_KV_LAYOUT_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/kv/policy.h"
#include "core/ops/step.h"

namespace tokend::kv {

// Distinct masks that one model can have under one policy: layers that the policy
// leaves full or not, and the model global or not.
inline constexpr int kMaxGroups = 4;

struct LayerGroup {
  ops::AttentionMask mask;
  std::vector<int> layers;

  bool full() const { return mask.window_tokens == 0; }
};

// Fixed for all nodes under one root.
struct Layout {
  RetentionPolicy policy;
  int layers = 0;
  int page_tokens = 0;
  std::vector<LayerGroup> groups;   // 1 to kMaxGroups; at most one is full
  std::vector<int> group_of_layer;  // [layers]
  uint32_t full_groups = 0;         // the bit of the full one
  int32_t sink_pages = 0;           // most of any group

  // Of roots whose chains forget (SetHistory); 0: they keep all tokens.
  int64_t keep_nodes = 0;   // least that stay before the end of what somebody claims
  int64_t lead_tokens = 0;  // multiple of page_tokens; what stays before the first position
};

// `local_windows` [layers]: see StoreOptions.
Layout MakeLayout(const RetentionPolicy& policy, absl::Span<const int64_t> local_windows,
                  int page_tokens);

// Positions before `position` that a query at `position` sees in no layer.
int64_t HiddenPositions(const Layout& layout, int64_t position);

// Finds out, node by node from position 0 on, up to where a sequence's KV is
// complete: every row is there that a query at the next position can reach.
class ResumeScan {
 public:
  explicit ResumeScan(const Layout& layout) : layout_(layout) {}

  // Starts at `position` without having seen the whole nodes before: those that a
  // query at `position` can reach are there.
  void StartAt(int64_t position);
  // Starts behind `nodes` nodes, of which the windowed groups have no rows but for
  // sinks; bit g of `sinks`: those of group g are there.
  void SkipTo(int64_t nodes, uint32_t sinks);
  // The next node; bit g of `whole`: all its rows are there in group g.
  void Add(uint32_t whole);
  // Whether work can resume at `position`, at or behind the last node's end, if
  // the rows in between are there too.
  bool CanResume(int64_t position) const;
  bool CanResume() const { return CanResume(nodes_ * layout_.page_tokens); }
  // Whether no later node can change a no to a yes.
  bool Hopeless() const { return hopeless_; }
  int64_t nodes() const { return nodes_; }

 private:
  const Layout& layout_;
  int64_t nodes_ = 0;
  bool hopeless_ = false;                            // a full group misses a node
  std::array<bool, kMaxGroups> sinks_missing_ = {};  // windowed
  std::array<int64_t, kMaxGroups> first_ = {};       // windowed: start of the last whole run
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_LAYOUT_H_
