// `phi2`: Phi-1 to Phi-2, both halves of a block read one norm.
#include "core/base/status_macros.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

absl::Status ReadBlock(const BlockReader& block) {
  TOKEND_RETURN_IF_ERROR(block.ReadNorm("attn_norm", &block.layer().attention_norm));
  TOKEND_RETURN_IF_ERROR(block.ReadAttention(Bias::kRequired, Bias::kRequired));
  return block.ReadPlainFfn(Bias::kRequired);
}

}  // namespace

absl::Status BuildPhi2(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kLayer));
  reader->plan().activation = ops::Activation::kGeluTanh;
  reader->plan().parallel_residual = true;
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kHalves}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput(Bias::kRequired);
}

}  // namespace tokend::model
