// `smollm3`: every fourth layer has no rope.
#include "core/base/status_macros.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

absl::Status ReadBlock(const BlockReader& block) {
  TOKEND_RETURN_IF_ERROR(block.ReadInputNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadAttention(Bias::kNone, Bias::kNone));
  return block.ReadGatedFfn(Bias::kNone);
}

}  // namespace

absl::Status BuildSmolLm3(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kRms));
  constexpr size_t kPeriod = 4;
  for (size_t i = kPeriod - 1; i < reader->plan().layers.size(); i += kPeriod) {
    reader->plan().layers[i].rope = ops::kNoRope;
  }
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = ops::RopePairing::kInterleaved}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
