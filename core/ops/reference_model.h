#ifndef TOKEND_CORE_OPS_REFERENCE_MODEL_H_
#define TOKEND_CORE_OPS_REFERENCE_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/ops/plan.h"
#include "core/ops/step.h"

namespace tokend::ops {

// Runs a plan over a whole token sequence at once, in double, with dense masked
// attention: no pages, no cache, no steps. What every backend is held against.
// Slow: every weight is de-quantised on each call.
class ReferenceModel {
 public:
  // `plan` and the weights it points to outlive the model.
  explicit ReferenceModel(const ModelPlan& plan) : plan_(plan) {}

  // Logits at `positions` of `tokens`: [positions.size(), vocabulary_size].
  // `masks` holds one mask a layer.
  std::vector<double> Logits(absl::Span<const int32_t> tokens,
                             absl::Span<const AttentionMask> masks,
                             absl::Span<const int64_t> positions) const;
  // The same mask in all layers.
  std::vector<double> Logits(absl::Span<const int32_t> tokens, const AttentionMask& mask,
                             absl::Span<const int64_t> positions) const;

 private:
  // [tokens, width], as the first block sees them.
  std::vector<double> Embed(absl::Span<const int32_t> tokens) const;
  // x: [tokens, width].
  void RunBlock(const LayerPlan& layer, const AttentionMask& mask, absl::Span<double> x) const;
  // What the two halves of a block add to x, post norm included; n, m: [tokens, width].
  std::vector<double> Attention(const LayerPlan& layer, const AttentionMask& mask,
                                absl::Span<const double> n) const;
  std::vector<double> FeedForward(const LayerPlan& layer, absl::Span<const double> m) const;
  // Each of the rows of x, normalised.
  std::vector<double> Normed(absl::Span<const double> x, const Norm& norm) const;
  // The norm of queries or keys, x: [tokens, heads, head_dim].
  void NormHeads(Vector weight, int heads, absl::Span<double> x) const;
  // By the layer's rope, if it has one.
  void Rotate(const LayerPlan& layer, int64_t position, absl::Span<double> x) const;

  const ModelPlan& plan_;
};

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_REFERENCE_MODEL_H_
