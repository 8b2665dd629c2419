// `phi3`: Phi-3 and Phi-4-mini. One window for all layers, longrope by the tensors of
// factors, q, k, v and gate, up in one tensor each.
#include "core/base/status_macros.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

absl::Status ReadBlock(const BlockReader& block) {
  TOKEND_RETURN_IF_ERROR(block.ReadInputNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadAttention(Bias::kNone, Bias::kNone));
  return block.ReadFusedFfn();
}

}  // namespace

absl::Status BuildPhi3(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kRms));
  TOKEND_ASSIGN_OR_RETURN(const int64_t window, reader->GetWindow());
  for (ops::LayerPlan& layer : reader->plan().layers) layer.local_tokens = window;
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kHalves}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
