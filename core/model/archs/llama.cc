// `llama`: Llama 1 to 3.3, Mistral, SmolLM and their kin. Rope in pairs
// (2i, 2i + 1): converters permute the rows of Q and K to that order.
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

absl::Status BuildLlama(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kRms));
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kInterleaved}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
