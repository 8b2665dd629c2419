#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/ops/attention.h"
#include "core/ops/softmax.h"

namespace tokend::ops {
namespace {

// `row_of(q)` is the index of position q's row in keys and values.
template <typename RowOf>
void Attend(const AttentionShape& shape, const AttentionMask& mask, int64_t position,
            absl::Span<const double> query, absl::Span<const double> sink_query, const double* keys,
            const double* values, RowOf row_of, absl::Span<double> out) {
  std::vector<int64_t> seen;
  std::vector<int64_t> rows;
  const int64_t begin = mask.WindowBegin(position);
  for (int64_t q = mask.SinkBegin(position); q < std::min(begin, mask.SinkEnd()); ++q) {
    seen.push_back(q);
  }
  for (int64_t q = begin; q <= position; ++q) seen.push_back(q);
  for (const int64_t q : seen) rows.push_back(row_of(q));
  const int group = shape.heads / shape.kv_heads;
  const int dim = shape.head_dim;
  std::fill(out.begin(), out.end(), 0.0);
  for (int head = 0; head < shape.heads; ++head) {
    std::vector<double> scores(seen.size());
    for (size_t j = 0; j < seen.size(); ++j) {
      const bool sink = seen[j] < mask.SinkEnd();
      const double* q = (sink ? sink_query : query).data() + head * dim;
      const double* k = keys + (rows[j] * shape.kv_heads + head / group) * dim;
      for (int i = 0; i < dim; ++i) scores[j] += q[i] * k[i];
      scores[j] *= shape.scale;
    }
    SoftmaxRef(absl::MakeSpan(scores));
    for (size_t j = 0; j < seen.size(); ++j) {
      const double* v = values + (rows[j] * shape.kv_heads + head / group) * dim;
      for (int i = 0; i < dim; ++i) out[head * dim + i] += scores[j] * v[i];
    }
  }
}

}  // namespace

void AttentionRef(const AttentionShape& shape, const AttentionMask& mask, int64_t position,
                  absl::Span<const double> query, absl::Span<const double> sink_query,
                  absl::Span<const double> keys, absl::Span<const double> values,
                  absl::Span<double> out) {
  const auto row = static_cast<int64_t>(shape.kv_heads * shape.head_dim);
  TOKEND_CHECK(static_cast<int64_t>(keys.size()) >= (position + 1) * row);
  TOKEND_CHECK(keys.size() == values.size() && query.size() == out.size());
  Attend(
      shape, mask, position, query, sink_query, keys.data(), values.data(),
      [](int64_t q) { return q; }, out);
}

void PagedAttentionRef(const AttentionShape& shape, const LayerKv& layer, int64_t position,
                       absl::Span<const double> query, absl::Span<const double> sink_query,
                       const ReferencePages& pages, absl::Span<double> out) {
  Attend(
      shape, layer.mask, position, query, sink_query, pages.keys.data(), pages.values.data(),
      [&](int64_t q) {
        const base::PageId page = FindPage(layer, q / pages.page_tokens);
        TOKEND_CHECK(page != base::PageId::kNone);
        return static_cast<int64_t>(page) * pages.page_tokens + q % pages.page_tokens;
      },
      out);
}

}  // namespace tokend::ops
