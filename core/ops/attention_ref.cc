#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/check.h"
#include "core/ops/attention.h"
#include "core/ops/soft_cap.h"
#include "core/ops/softmax.h"

namespace tokend::ops {
namespace {

// A position that is seen, and the index of its row in keys and values.
struct SeenRow {
  int64_t position;
  int64_t row;
};

// `weigh(i, p)` is told the probability of seen[i], once a head.
template <typename Weigh>
void Attend(const AttentionShape& shape, const AttentionMask& mask, absl::Span<const double> query,
            absl::Span<const double> sink_query, const double* keys, const double* values,
            absl::Span<const SeenRow> seen, Weigh weigh, absl::Span<double> out) {
  const int group = shape.heads / shape.kv_heads;
  const int dim = shape.head_dim;
  std::fill(out.begin(), out.end(), 0.0);
  for (int head = 0; head < shape.heads; ++head) {
    std::vector<double> scores(seen.size());
    for (size_t j = 0; j < seen.size(); ++j) {
      const bool sink = seen[j].position < mask.SinkEnd();
      const double* q = (sink ? sink_query : query).data() + head * dim;
      const double* k = keys + (seen[j].row * shape.kv_heads + head / group) * dim;
      for (int i = 0; i < dim; ++i) scores[j] += q[i] * k[i];
      scores[j] = SoftCap(shape.soft_cap, scores[j] * shape.scale);
    }
    SoftmaxRef(absl::MakeSpan(scores));
    for (size_t j = 0; j < seen.size(); ++j) {
      const double* v = values + (seen[j].row * shape.kv_heads + head / group) * dim;
      for (int i = 0; i < dim; ++i) out[head * dim + i] += scores[j] * v[i];
      weigh(j, scores[j]);
    }
  }
}

}  // namespace

int64_t NextSeen(const LayerKv& layer, int64_t position, int64_t q, int page_tokens) {
  const AttentionMask& mask = layer.mask;
  const int64_t sink = std::max(q, mask.SinkBegin(position));
  q = sink < mask.SinkEnd() ? sink : std::max(q, mask.WindowBegin(position));
  if (q < layer.hidden_begin || q >= layer.hidden_end) return q;
  const int32_t* const end = layer.kept + layer.kept_pages;
  const int32_t* const page = std::lower_bound(layer.kept, end, q / page_tokens);
  if (page == end) return layer.hidden_end;
  return std::min(layer.hidden_end, std::max(q, int64_t{*page} * page_tokens));
}

void AttentionRef(const AttentionShape& shape, const AttentionMask& mask, int64_t position,
                  absl::Span<const double> query, absl::Span<const double> sink_query,
                  absl::Span<const double> keys, absl::Span<const double> values,
                  absl::Span<double> out) {
  const auto row = static_cast<int64_t>(shape.kv_heads * shape.head_dim);
  TOKEND_CHECK(static_cast<int64_t>(keys.size()) >= (position + 1) * row);
  TOKEND_CHECK(keys.size() == values.size() && query.size() == out.size());
  std::vector<SeenRow> seen;
  const LayerKv layer = {.mask = mask};
  for (int64_t q = NextSeen(layer, position, 0, 1); q <= position;
       q = NextSeen(layer, position, q + 1, 1)) {
    seen.push_back({q, q});
  }
  Attend(
      shape, mask, query, sink_query, keys.data(), values.data(), seen, [](size_t, double) {}, out);
}

void PagedAttentionRef(const AttentionShape& shape, const LayerKv& layer, int64_t position,
                       absl::Span<const double> query, absl::Span<const double> sink_query,
                       const ReferencePages& pages, absl::Span<double> out) {
  std::vector<SeenRow> seen;
  std::vector<int32_t> entries;
  for (int64_t q = NextSeen(layer, position, 0, pages.page_tokens); q <= position;
       q = NextSeen(layer, position, q + 1, pages.page_tokens)) {
    entries.push_back(FindEntry(layer, q / pages.page_tokens));
    TOKEND_CHECK(entries.back() >= 0);
    const auto page = static_cast<int64_t>(layer.pages[entries.back()]);
    seen.push_back({q, page * pages.page_tokens + q % pages.page_tokens});
  }
  const auto weigh = [&](size_t i, double p) {
    if (layer.scores != nullptr) layer.scores[entries[i]] += std::llround(std::ldexp(p, 20));
  };
  Attend(shape, layer.mask, query, sink_query, pages.keys.data(), pages.values.data(), seen, weigh,
         out);
}

}  // namespace tokend::ops
