// `starcoder2`: LayerNorm, biases everywhere, no gate.
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

absl::Status BuildStarCoder2(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kLayer));
  reader->plan().activation = ops::Activation::kGeluTanh;
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kHalves}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
