// `olmo2`: norms of each half's output alone; one norm over all queries, one over all keys.
#include "core/base/status_macros.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

absl::Status ReadBlock(const BlockReader& block) {
  TOKEND_RETURN_IF_ERROR(block.ReadPostNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadQkNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadAttention(Bias::kNone, Bias::kNone));
  return block.ReadGatedFfn(Bias::kNone);
}

}  // namespace

absl::Status BuildOlmo2(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kRms));
  reader->plan().qk_norm = ops::QkNorm::kVector;
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kHalves}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
