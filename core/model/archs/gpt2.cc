// `gpt2`: learned positions, LayerNorm, biases everywhere.
#include "core/base/status_macros.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

absl::Status ReadBlock(const BlockReader& block) {
  TOKEND_RETURN_IF_ERROR(block.ReadInputNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadAttention(Bias::kRequired, Bias::kRequired));
  return block.ReadPlainFfn(Bias::kRequired);
}

}  // namespace

absl::Status BuildGpt2(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kLayer));
  ops::ModelPlan& plan = reader->plan();
  for (ops::LayerPlan& layer : plan.layers) layer.rope = ops::kNoRope;
  plan.activation = ops::Activation::kGeluTanh;
  TOKEND_ASSIGN_OR_RETURN(
      plan.position_embedding,
      reader->tensors().GetMatrix("position_embd.weight", plan.context_tokens, plan.width));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
