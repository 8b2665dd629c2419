#include "core/model/plan_reader.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"

namespace tokend::model {

std::string PlanReader::Key(absl::string_view name) const {
  return absl::StrCat(architecture_, ".", name);
}

absl::Status PlanReader::Damaged(absl::string_view name, absl::string_view problem) const {
  return gguf::Damaged(absl::StrCat("key ", gguf::Quoted(Key(name))), problem);
}

absl::StatusOr<int64_t> PlanReader::GetCount(absl::string_view name) const {
  constexpr uint64_t kMost = 1 << 24;
  TOKEND_ASSIGN_OR_RETURN(const uint64_t value, file_.GetU64(Key(name)));
  if (value < 1 || value > kMost) {
    return Damaged(name, absl::StrCat("is ", value, ", expected 1 to ", kMost));
  }
  return static_cast<int64_t>(value);
}

absl::StatusOr<int64_t> PlanReader::GetCountOr(absl::string_view name, int64_t fallback) const {
  if (!Has(name)) return fallback;
  return GetCount(name);
}

absl::Status PlanReader::CheckPositive(absl::string_view name, float value) const {
  if (value > 0) return absl::OkStatus();
  return Damaged(name, absl::StrCat("is ", value, ", expected above 0"));
}

absl::StatusOr<float> PlanReader::GetPositive(absl::string_view name) const {
  TOKEND_ASSIGN_OR_RETURN(const float value, file_.GetF32(Key(name)));
  TOKEND_RETURN_IF_ERROR(CheckPositive(name, value));
  return value;
}

absl::StatusOr<float> PlanReader::GetPositiveOr(absl::string_view name, float fallback) const {
  if (!Has(name)) return fallback;
  return GetPositive(name);
}

absl::StatusOr<int64_t> PlanReader::GetWindow() const {
  constexpr uint32_t kMost = 1 << 24;
  TOKEND_ASSIGN_OR_RETURN(const uint32_t window,
                          file_.GetU32Or(Key("attention.sliding_window"), 0));
  if (window > kMost) {
    return Damaged("attention.sliding_window",
                   absl::StrCat("is ", window, ", expected at most ", kMost));
  }
  return int64_t{window};
}

absl::Status PlanReader::ReadHeads() {
  ops::ModelPlan& plan = *plan_;
  TOKEND_ASSIGN_OR_RETURN(const int64_t heads, GetCount("attention.head_count"));
  TOKEND_ASSIGN_OR_RETURN(const int64_t kv_heads, GetCountOr("attention.head_count_kv", heads));
  if (heads % kv_heads != 0) {
    return Damaged("attention.head_count_kv",
                   absl::StrCat("is ", kv_heads, "; does not divide the ", heads, " heads"));
  }
  if (!Has("attention.key_length") && plan.width % heads != 0) {
    return Damaged("attention.head_count",
                   absl::StrCat("is ", heads, "; does not divide the width ", plan.width));
  }
  TOKEND_ASSIGN_OR_RETURN(const int64_t head_dim,
                          GetCountOr("attention.key_length", plan.width / heads));
  TOKEND_ASSIGN_OR_RETURN(const int64_t value_dim, GetCountOr("attention.value_length", head_dim));
  if (value_dim != head_dim) {
    return gguf::Unsupported(absl::StrCat("key ", gguf::Quoted(Key("attention.value_length"))),
                             "differs from attention.key_length");
  }
  plan.heads = static_cast<int>(heads);
  plan.kv_heads = static_cast<int>(kv_heads);
  plan.head_dim = static_cast<int>(head_dim);
  plan.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  return absl::OkStatus();
}

absl::Status PlanReader::ReadShapes(ops::NormKind norm_kind) {
  ops::ModelPlan& plan = *plan_;
  TOKEND_ASSIGN_OR_RETURN(plan.width, GetCount("embedding_length"));
  TOKEND_ASSIGN_OR_RETURN(plan.ffn_width, GetCount("feed_forward_length"));
  TOKEND_ASSIGN_OR_RETURN(plan.context_tokens, GetCount("context_length"));
  TOKEND_ASSIGN_OR_RETURN(const int64_t layers, GetCount("block_count"));
  TOKEND_RETURN_IF_ERROR(ReadHeads());
  TOKEND_ASSIGN_OR_RETURN(const uint32_t experts, file_.GetU32Or(Key("expert_count"), 0));
  if (experts > 0) {
    return gguf::Unsupported(absl::StrCat("key ", gguf::Quoted(Key("expert_count"))),
                             "mixture-of-experts models are not supported");
  }
  if (static_cast<uint64_t>(layers) > file_.tensors().size()) {
    return Damaged("block_count", absl::StrCat("is ", layers, "; the file has ",
                                               file_.tensors().size(), " tensors"));
  }
  plan.layers.resize(static_cast<size_t>(layers));
  plan.norm_kind = norm_kind;
  const absl::string_view epsilon = norm_kind == ops::NormKind::kRms
                                        ? "attention.layer_norm_rms_epsilon"
                                        : "attention.layer_norm_epsilon";
  TOKEND_ASSIGN_OR_RETURN(plan.norm_epsilon, file_.GetF32(Key(epsilon)));
  if (!(plan.norm_epsilon > 0) || plan.norm_epsilon > 1) {
    return Damaged(epsilon, absl::StrCat("is ", plan.norm_epsilon, ", expected (0, 1]"));
  }
  return absl::OkStatus();
}

absl::Status PlanReader::ReadEmbedding() {
  TOKEND_ASSIGN_OR_RETURN(const gguf::TensorInfo* embedding, file_.GetTensor("token_embd.weight"));
  plan_->vocabulary_size = static_cast<int64_t>(embedding->rows());
  TOKEND_ASSIGN_OR_RETURN(
      plan_->embedding,
      tensors_->GetMatrix("token_embd.weight", plan_->vocabulary_size, plan_->width));
  return absl::OkStatus();
}

absl::Status PlanReader::ForBlocks(absl::FunctionRef<absl::Status(const BlockReader&)> read) {
  for (size_t i = 0; i < plan_->layers.size(); ++i) {
    TOKEND_RETURN_IF_ERROR(read(BlockReader(this, i)));
  }
  return absl::OkStatus();
}

absl::Status PlanReader::ReadOutput(Bias bias) {
  TOKEND_RETURN_IF_ERROR(ReadNorm("output_norm", &plan_->output_norm));
  if (file_.FindTensor("output.weight") == nullptr) {
    plan_->output.weight = plan_->embedding;
    return absl::OkStatus();
  }
  TOKEND_ASSIGN_OR_RETURN(
      plan_->output, tensors_->GetLinear("output", plan_->vocabulary_size, plan_->width, bias));
  return absl::OkStatus();
}

absl::Status PlanReader::ReadNorm(absl::string_view prefix, ops::Norm* norm) {
  TOKEND_ASSIGN_OR_RETURN(norm->weight,
                          tensors_->GetVector(absl::StrCat(prefix, ".weight"), plan_->width));
  if (plan_->norm_kind == ops::NormKind::kRms) return absl::OkStatus();
  TOKEND_ASSIGN_OR_RETURN(norm->bias,
                          tensors_->GetVector(absl::StrCat(prefix, ".bias"), plan_->width));
  return absl::OkStatus();
}

}  // namespace tokend::model
