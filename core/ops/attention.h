#ifndef TOKEND_CORE_OPS_ATTENTION_H_
#define TOKEND_CORE_OPS_ATTENTION_H_

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"
#include "core/base/page_id.h"
#include "core/ops/step.h"

namespace tokend::ops {

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;  // divides heads; head h reads KV head h / (heads / kv_heads)
  int head_dim = 0;
  double scale = 0;     // on q . k
  double soft_cap = 0;  // see soft_cap.h; 0: none
};

// One query row at `position` over the rows that `mask` sees:
//   out[h] = sum over q of softmax(cap(scale * query_q[h] . key[q])) value[q]
// where query_q is `sink_query` for q < mask.sink_tokens and `query` else
// (grouped queries: Ainslie et al. 2023; sinks: step.h). Rows that the mask
// hides are never read.
//   query, sink_query: [heads, head_dim], rotated at `position` and at
//     mask.SinkPosition(position)
//   keys (rotated at their own position), values: [> position, kv_heads, head_dim]
//   out: [heads, head_dim]
void AttentionRef(const AttentionShape& shape, const AttentionMask& mask, int64_t position,
                  absl::Span<const double> query, absl::Span<const double> sink_query,
                  absl::Span<const double> keys, absl::Span<const double> values,
                  absl::Span<double> out);

// An arena of pages as plain rows, [pages, page_tokens, kv_heads, head_dim]
// both, for the reference; a backend lays its pages out as it likes.
struct ReferencePages {
  int page_tokens = 0;
  absl::Span<const double> keys;
  absl::Span<const double> values;
};

// AttentionRef over a page table. Adds to layer.scores, where there are some.
void PagedAttentionRef(const AttentionShape& shape, const LayerKv& layer, int64_t position,
                       absl::Span<const double> query, absl::Span<const double> sink_query,
                       const ReferencePages& pages, absl::Span<double> out);

// Where the table has logical page `index`; -1: nowhere.
inline int32_t FindEntry(const LayerKv& layer, int64_t index) {
  if (index < layer.sink_pages) return static_cast<int32_t>(index);
  if (index < layer.first_page) {
    const int32_t* const end = layer.kept + layer.kept_pages;
    const int32_t* const found = std::lower_bound(layer.kept, end, index);
    if (found == end || *found != index) return -1;
    return layer.sink_pages + static_cast<int32_t>(found - layer.kept);
  }
  const int64_t at = layer.sink_pages + layer.kept_pages + index - layer.first_page;
  return at < layer.page_count ? static_cast<int32_t>(at) : -1;
}

// The page that holds logical page `index`, or kNone if the table has none.
inline base::PageId FindPage(const LayerKv& layer, int64_t index) {
  const int32_t entry = FindEntry(layer, index);
  return entry < 0 ? base::PageId::kNone : layer.pages[entry];
}

// First position at or after `q` that the row at `position` sees, or one behind
// `position`.
int64_t NextSeen(const LayerKv& layer, int64_t position, int64_t q, int page_tokens);

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_ATTENTION_H_
