#include "core/ops/reference_model.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/ops/attention.h"
#include "core/ops/linear.h"
#include "core/ops/rms_norm.h"
#include "core/ops/rope.h"
#include "core/ops/swiglu.h"

namespace tokend::ops {
namespace {

std::vector<double> Apply(const Linear& linear, absl::Span<const double> x) {
  const size_t count = x.size() / static_cast<size_t>(linear.weight.cols);
  std::vector<double> y(count * static_cast<size_t>(linear.weight.rows));
  LinearRef(linear, x, absl::MakeSpan(y));
  return y;
}

void Add(absl::Span<const double> from, absl::Span<double> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

}  // namespace

std::vector<double> ReferenceModel::Norm(absl::Span<const double> x, Vector weight) const {
  const auto width = static_cast<size_t>(plan_.width);
  std::vector<double> out(x.size());
  for (size_t at = 0; at < x.size(); at += width) {
    RmsNormRef(x.subspan(at, width), absl::MakeConstSpan(weight, width), plan_.norm_epsilon,
               absl::MakeSpan(out).subspan(at, width));
  }
  return out;
}

void ReferenceModel::AddAttention(const LayerPlan& layer, const AttentionMask& mask,
                                  absl::Span<double> x) const {
  const std::vector<double> n = Norm(x, layer.attention_norm);
  std::vector<double> query = Apply(layer.query, n);
  std::vector<double> key = Apply(layer.key, n);
  const std::vector<double> value = Apply(layer.value, n);
  const size_t count = x.size() / static_cast<size_t>(plan_.width);
  const size_t q_row = query.size() / count;
  const size_t k_row = key.size() / count;
  for (size_t p = 0; p < count; ++p) {
    RopeRef(plan_.rope, static_cast<int64_t>(p), plan_.head_dim,
            absl::MakeSpan(key).subspan(p * k_row, k_row));
  }
  const AttentionShape shape = {plan_.heads, plan_.kv_heads, plan_.head_dim, plan_.attention_scale};
  std::vector<double> mixed(query.size());
  for (size_t p = 0; p < count; ++p) {
    const auto position = static_cast<int64_t>(p);
    const absl::Span<double> own = absl::MakeSpan(query).subspan(p * q_row, q_row);
    std::vector<double> sink(own.begin(), own.end());
    RopeRef(plan_.rope, mask.SinkPosition(position), plan_.head_dim, absl::MakeSpan(sink));
    RopeRef(plan_.rope, position, plan_.head_dim, own);
    AttentionRef(shape, mask, position, own, sink, key, value,
                 absl::MakeSpan(mixed).subspan(p * q_row, q_row));
  }
  Add(Apply(layer.attention_output, mixed), x);
}

void ReferenceModel::AddFeedForward(const LayerPlan& layer, absl::Span<double> x) const {
  const std::vector<double> n = Norm(x, layer.ffn_norm);
  std::vector<double> gate = Apply(layer.gate, n);
  const std::vector<double> up = Apply(layer.up, n);
  SwiGluRef(gate, up, absl::MakeSpan(gate));
  Add(Apply(layer.down, gate), x);
}

std::vector<double> ReferenceModel::Logits(absl::Span<const int32_t> tokens,
                                           absl::Span<const AttentionMask> masks,
                                           absl::Span<const int64_t> positions) const {
  TOKEND_CHECK(masks.size() == plan_.layers.size());
  const auto width = static_cast<size_t>(plan_.width);
  std::vector<double> x(tokens.size() * width);
  for (size_t t = 0; t < tokens.size(); ++t) {
    EmbeddingRef(plan_.embedding, tokens[t], absl::MakeSpan(x).subspan(t * width, width));
  }
  for (size_t l = 0; l < plan_.layers.size(); ++l) {
    AddAttention(plan_.layers[l], masks[l], absl::MakeSpan(x));
    AddFeedForward(plan_.layers[l], absl::MakeSpan(x));
  }
  std::vector<double> wanted;
  for (const int64_t position : positions) {
    TOKEND_CHECK(position >= 0 && static_cast<size_t>(position) < tokens.size());
    const auto row = x.begin() + position * plan_.width;
    wanted.insert(wanted.end(), row, row + plan_.width);
  }
  return Apply(plan_.output, Norm(wanted, plan_.output_norm));
}

std::vector<double> ReferenceModel::Logits(absl::Span<const int32_t> tokens,
                                           const AttentionMask& mask,
                                           absl::Span<const int64_t> positions) const {
  return Logits(tokens, std::vector<AttentionMask>(plan_.layers.size(), mask), positions);
}

}  // namespace tokend::ops
