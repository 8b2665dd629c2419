// `chatglm`: ChatGLM3 and GLM-4-9b-chat. Half of a head is rotated.
#include "core/base/status_macros.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

absl::Status ReadBlock(const BlockReader& block) {
  TOKEND_RETURN_IF_ERROR(block.ReadInputNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadAttention(Bias::kOptional, Bias::kNone));
  return block.ReadFusedFfn();
}

}  // namespace

absl::Status BuildChatGlm(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kRms));
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kInterleaved}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
