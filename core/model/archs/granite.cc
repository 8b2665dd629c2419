// `granite`: a llama with scales.
#include "core/base/status_macros.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

absl::Status ReadBlock(const BlockReader& block) {
  TOKEND_RETURN_IF_ERROR(block.ReadInputNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadAttention(Bias::kOptional, Bias::kOptional));
  return block.ReadGatedFfn(Bias::kOptional);
}

}  // namespace

absl::Status BuildGranite(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kRms));
  ops::ModelPlan& plan = reader->plan();
  TOKEND_ASSIGN_OR_RETURN(plan.attention_scale,
                          reader->GetPositiveOr("attention.scale", plan.attention_scale));
  TOKEND_ASSIGN_OR_RETURN(plan.embedding_scale, reader->GetPositiveOr("embedding_scale", 1));
  TOKEND_ASSIGN_OR_RETURN(plan.residual_scale, reader->GetPositiveOr("residual_scale", 1));
  TOKEND_ASSIGN_OR_RETURN(const float divisor, reader->GetPositiveOr("logit_scale", 1));
  plan.logit_scale = 1 / divisor;
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kInterleaved}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
