// `qwen3`: each query's and key's head has a norm.
#include "core/base/status_macros.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

absl::Status ReadBlock(const BlockReader& block) {
  TOKEND_RETURN_IF_ERROR(block.ReadInputNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadQkNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadAttention(Bias::kNone, Bias::kNone));
  return block.ReadGatedFfn(Bias::kNone);
}

}  // namespace

absl::Status BuildQwen3(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kRms));
  reader->plan().qk_norm = ops::QkNorm::kHead;
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kHalves}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
