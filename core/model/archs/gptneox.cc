// `gptneox`: Pythia and its kin, the halves of a block in parallel. The file does not say
// which GELU; Pythia's own is the exact one.
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

absl::Status BuildGptNeoX(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kLayer));
  ops::ModelPlan& plan = reader->plan();
  plan.activation = ops::Activation::kGelu;
  TOKEND_ASSIGN_OR_RETURN(plan.parallel_residual,
                          reader->file().GetBoolOr(reader->Key("use_parallel_residual"), true));
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kHalves}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
