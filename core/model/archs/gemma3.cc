// `gemma3`: local layers with a rope of their own, and global ones.
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

constexpr int64_t kPeriod = 6;

// By layer. "attention.sliding_window_pattern" is a period, or says it of each layer.
absl::StatusOr<std::vector<bool>> ReadLocalLayers(const PlanReader& reader) {
  constexpr absl::string_view kPattern = "attention.sliding_window_pattern";
  const size_t layers = reader.plan().layers.size();
  const gguf::MetadataEntry* const entry = reader.file().FindMetadata(reader.Key(kPattern));
  if (entry != nullptr && entry->type == gguf::ValueType::kArray) {
    TOKEND_ASSIGN_OR_RETURN(std::vector<bool> local, reader.file().GetBools(reader.Key(kPattern)));
    if (local.size() == layers) return local;
    return reader.Damaged(kPattern,
                          absl::StrCat("has ", local.size(), " elements, expected ", layers));
  }
  TOKEND_ASSIGN_OR_RETURN(const int64_t period, reader.GetCountOr(kPattern, kPeriod));
  std::vector<bool> local(layers);
  for (size_t i = 0; i < layers; ++i) local[i] = (i + 1) % static_cast<size_t>(period) != 0;
  return local;
}

absl::Status ReadBlock(const BlockReader& block) {
  TOKEND_RETURN_IF_ERROR(block.ReadInputNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadPostNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadQkNorms());
  TOKEND_RETURN_IF_ERROR(block.ReadAttention(Bias::kNone, Bias::kNone));
  return block.ReadGatedFfn(Bias::kNone);
}

}  // namespace

absl::Status BuildGemma3(PlanReader* reader) {
  TOKEND_RETURN_IF_ERROR(reader->ReadShapes(ops::NormKind::kRms));
  ops::ModelPlan& plan = reader->plan();
  plan.activation = ops::Activation::kGeluTanh;
  plan.embedding_scale = std::sqrt(static_cast<float>(plan.width));
  // The largest one's scale is by the width.
  if (plan.layers.size() == 62) {
    plan.attention_scale =
        std::sqrt(static_cast<float>(plan.heads) / static_cast<float>(plan.width));
  }
  plan.qk_norm = ops::QkNorm::kHead;
  if (reader->Has("final_logit_softcapping")) {
    TOKEND_ASSIGN_OR_RETURN(plan.logit_soft_cap, reader->GetPositive("final_logit_softcapping"));
  }
  TOKEND_ASSIGN_OR_RETURN(const int64_t window, reader->GetCount("attention.sliding_window"));
  TOKEND_ASSIGN_OR_RETURN(const std::vector<bool> local, ReadLocalLayers(*reader));
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    plan.layers[i].local_tokens = local[i] ? window : 0;
    plan.layers[i].rope = local[i] ? 1 : 0;
  }
  constexpr auto kPairing = ops::RopePairing::kHalves;
  TOKEND_RETURN_IF_ERROR(reader->AddRope({.pairing = kPairing}));
  TOKEND_RETURN_IF_ERROR(
      reader->AddRope({.pairing = kPairing, .base_key = "rope.freq_base_swa", .scaled = false}));
  TOKEND_RETURN_IF_ERROR(reader->ReadEmbedding());
  TOKEND_RETURN_IF_ERROR(reader->ForBlocks(ReadBlock));
  return reader->ReadOutput();
}

}  // namespace tokend::model
