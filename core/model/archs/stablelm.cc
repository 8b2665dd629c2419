// `stablelm`: a quarter of a head is rotated. Without norms before the feed-forward
// networks (12B) both halves of a block read the same.
#include "core/base/status_macros.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

absl::Status ReadBlock(const BlockReader& block) {
  TOKEND_RETURN_IF_ERROR(block.ReadNorm("attn_norm", &block.layer().attention_norm));
  if (!block.plan().parallel_residual) {
    TOKEND_RETURN_IF_ERROR(block.ReadNorm("ffn_norm", &block.layer().ffn_norm));
  }
  TOKEND_RETURN_IF_ERROR(block.ReadAttention(Bias::kOptional, Bias::kNone));
  return block.ReadGatedFfn(Bias::kNone);
}

}  // namespace

absl::Status BuildStableLm(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kLayer));
  reader->plan().parallel_residual = !BlockReader(reader, 0).Has("ffn_norm.weight");
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kHalves}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
