#include "core/ops/reference_model.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/ops/activation.h"
#include "core/ops/attention.h"
#include "core/ops/layer_norm.h"
#include "core/ops/linear.h"
#include "core/ops/rms_norm.h"
#include "core/ops/rope.h"
#include "core/ops/soft_cap.h"

namespace tokend::ops {
namespace {

std::vector<double> Apply(const Linear& linear, absl::Span<const double> x) {
  const size_t count = x.size() / static_cast<size_t>(linear.weight.cols);
  std::vector<double> y(count * static_cast<size_t>(linear.weight.rows));
  LinearRef(linear, x, absl::MakeSpan(y));
  return y;
}

void AddScaled(absl::Span<const double> from, double scale, absl::Span<double> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += scale * from[i];
}

}  // namespace

std::vector<double> ReferenceModel::Normed(absl::Span<const double> x, const Norm& norm) const {
  std::vector<double> out(x.begin(), x.end());
  if (!norm.present()) return out;
  const auto width = static_cast<size_t>(plan_.width);
  const auto weight = absl::MakeConstSpan(norm.weight, width);
  const auto bias = absl::MakeConstSpan(norm.bias, norm.bias == nullptr ? 0 : width);
  for (size_t at = 0; at < x.size(); at += width) {
    const absl::Span<double> row = absl::MakeSpan(out).subspan(at, width);
    if (plan_.norm_kind == NormKind::kRms) {
      RmsNormRef(row, weight, plan_.norm_epsilon, row);
    } else {
      LayerNormRef(row, weight, bias, plan_.norm_epsilon, row);
    }
  }
  return out;
}

void ReferenceModel::NormHeads(Vector weight, int heads, absl::Span<double> x) const {
  if (plan_.qk_norm == QkNorm::kNone) return;
  const int group = plan_.qk_norm == QkNorm::kHead ? 1 : heads;
  const auto size = static_cast<size_t>(group) * static_cast<size_t>(plan_.head_dim);
  for (size_t at = 0; at < x.size(); at += size) {
    const absl::Span<double> part = x.subspan(at, size);
    RmsNormRef(part, absl::MakeConstSpan(weight, size), plan_.norm_epsilon, part);
  }
}

void ReferenceModel::Rotate(const LayerPlan& layer, int64_t position, absl::Span<double> x) const {
  if (layer.rope == kNoRope) return;
  RopeRef(plan_.ropes[static_cast<size_t>(layer.rope)], position, plan_.head_dim, x);
}

std::vector<double> ReferenceModel::Attention(const LayerPlan& layer, const AttentionMask& mask,
                                              absl::Span<const double> n) const {
  std::vector<double> query = Apply(layer.query, n);
  std::vector<double> key = Apply(layer.key, n);
  const std::vector<double> value = Apply(layer.value, n);
  NormHeads(layer.query_norm, plan_.heads, absl::MakeSpan(query));
  NormHeads(layer.key_norm, plan_.kv_heads, absl::MakeSpan(key));
  const size_t count = n.size() / static_cast<size_t>(plan_.width);
  const size_t q_row = query.size() / count;
  const size_t k_row = key.size() / count;
  for (size_t p = 0; p < count; ++p) {
    Rotate(layer, static_cast<int64_t>(p), absl::MakeSpan(key).subspan(p * k_row, k_row));
  }
  const AttentionShape shape = {plan_.heads, plan_.kv_heads, plan_.head_dim, plan_.attention_scale,
                                plan_.attention_soft_cap};
  std::vector<double> mixed(query.size());
  for (size_t p = 0; p < count; ++p) {
    const auto position = static_cast<int64_t>(p);
    const absl::Span<double> own = absl::MakeSpan(query).subspan(p * q_row, q_row);
    std::vector<double> sink(own.begin(), own.end());
    Rotate(layer, mask.SinkPosition(position), absl::MakeSpan(sink));
    Rotate(layer, position, own);
    AttentionRef(shape, mask, position, own, sink, key, value,
                 absl::MakeSpan(mixed).subspan(p * q_row, q_row));
  }
  return Normed(Apply(layer.attention_output, mixed), layer.post_attention_norm);
}

std::vector<double> ReferenceModel::FeedForward(const LayerPlan& layer,
                                                absl::Span<const double> m) const {
  std::vector<double> hidden = Apply(layer.up, m);
  if (layer.gate.present()) {
    GatedRef(plan_.activation, Apply(layer.gate, m), hidden, absl::MakeSpan(hidden));
  } else {
    ActivateRef(plan_.activation, hidden, absl::MakeSpan(hidden));
  }
  return Normed(Apply(layer.down, hidden), layer.post_ffn_norm);
}

void ReferenceModel::RunBlock(const LayerPlan& layer, const AttentionMask& mask,
                              absl::Span<double> x) const {
  const std::vector<double> n = Normed(x, layer.attention_norm);
  const std::vector<double> a = Attention(layer, mask, n);
  if (plan_.parallel_residual) {
    const std::vector<double> m = layer.ffn_norm.present() ? Normed(x, layer.ffn_norm) : n;
    AddScaled(a, plan_.residual_scale, x);
    AddScaled(FeedForward(layer, m), plan_.residual_scale, x);
  } else {
    AddScaled(a, plan_.residual_scale, x);
    AddScaled(FeedForward(layer, Normed(x, layer.ffn_norm)), plan_.residual_scale, x);
  }
}

std::vector<double> ReferenceModel::Embed(absl::Span<const int32_t> tokens) const {
  const auto width = static_cast<size_t>(plan_.width);
  std::vector<double> x(tokens.size() * width);
  std::vector<double> position(width);
  for (size_t t = 0; t < tokens.size(); ++t) {
    const absl::Span<double> row = absl::MakeSpan(x).subspan(t * width, width);
    EmbeddingRef(plan_.embedding, tokens[t], row);
    for (double& value : row) value *= plan_.embedding_scale;
    if (!plan_.position_embedding.present()) continue;
    EmbeddingRef(plan_.position_embedding, static_cast<int32_t>(t), absl::MakeSpan(position));
    AddScaled(position, 1, row);
  }
  return x;
}

std::vector<double> ReferenceModel::Logits(absl::Span<const int32_t> tokens,
                                           absl::Span<const AttentionMask> masks,
                                           absl::Span<const int64_t> positions) const {
  TOKEND_CHECK(masks.size() == plan_.layers.size());
  std::vector<double> x = Embed(tokens);
  for (size_t l = 0; l < plan_.layers.size(); ++l) {
    RunBlock(plan_.layers[l], masks[l], absl::MakeSpan(x));
  }
  std::vector<double> wanted;
  for (const int64_t position : positions) {
    TOKEND_CHECK(position >= 0 && static_cast<size_t>(position) < tokens.size());
    const auto row = x.begin() + position * plan_.width;
    wanted.insert(wanted.end(), row, row + plan_.width);
  }
  std::vector<double> logits = Apply(plan_.output, Normed(wanted, plan_.output_norm));
  for (double& logit : logits) logit = SoftCap(plan_.logit_soft_cap, plan_.logit_scale * logit);
  return logits;
}

std::vector<double> ReferenceModel::Logits(absl::Span<const int32_t> tokens,
                                           const AttentionMask& mask,
                                           absl::Span<const int64_t> positions) const {
  return Logits(tokens, std::vector<AttentionMask>(plan_.layers.size(), mask), positions);
}

}  // namespace tokend::ops
