// `gemma2`: even layers are local. Norms' weights are stored with their 1 added.
#include <cmath>

#include "core/base/status_macros.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

absl::Status ReadBlock(const BlockReader& block) {
  TOKEND_RETURN_IF_ERROR(block.ReadInputNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadPostNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadAttention(Bias::kNone, Bias::kNone));
  return block.ReadGatedFfn(Bias::kNone);
}

}  // namespace

absl::Status BuildGemma2(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kRms));
  ops::ModelPlan& plan = reader->plan();
  plan.activation = ops::Activation::kGeluTanh;
  plan.embedding_scale = std::sqrt(static_cast<float>(plan.width));
  // The largest one's scale is by the width.
  if (plan.layers.size() == 46) {
    plan.attention_scale =
        std::sqrt(static_cast<float>(plan.heads) / static_cast<float>(plan.width));
  }
  TOKEND_ASSIGN_OR_RETURN(plan.attention_soft_cap,
                          reader->GetPositiveOr("attn_logit_softcapping", 50));
  TOKEND_ASSIGN_OR_RETURN(plan.logit_soft_cap,
                          reader->GetPositiveOr("final_logit_softcapping", 30));
  TOKEND_ASSIGN_OR_RETURN(const int64_t window, reader->GetWindow());
  for (size_t i = 0; i < plan.layers.size(); i += 2) plan.layers[i].local_tokens = window;
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kHalves}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
