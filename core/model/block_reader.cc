#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/plan_reader.h"

namespace tokend::model {

std::string BlockReader::Name(absl::string_view tensor) const {
  return absl::StrCat("blk.", index_, ".", tensor);
}

bool BlockReader::Has(absl::string_view tensor) const {
  return reader_.file().FindTensor(Name(tensor)) != nullptr;
}

absl::Status BlockReader::ReadLinear(absl::string_view name, int64_t rows, int64_t cols, Bias bias,
                                     ops::Linear* linear) const {
  TOKEND_ASSIGN_OR_RETURN(*linear, reader_.tensors().GetLinear(Name(name), rows, cols, bias));
  return absl::OkStatus();
}

absl::Status BlockReader::ReadNorm(absl::string_view name, ops::Norm* norm) const {
  return reader_.ReadNorm(Name(name), norm);
}

absl::Status BlockReader::ReadInputNorms() const {
  TOKEND_RETURN_IF_ERROR(ReadNorm("attn_norm", &layer().attention_norm));
  return ReadNorm("ffn_norm", &layer().ffn_norm);
}

absl::Status BlockReader::ReadPostNorms() const {
  TOKEND_RETURN_IF_ERROR(ReadNorm("post_attention_norm", &layer().post_attention_norm));
  return ReadNorm("post_ffw_norm", &layer().post_ffn_norm);
}

absl::Status BlockReader::ReadQkNorms() const {
  const ops::ModelPlan& plan = reader_.plan();
  const bool whole = plan.qk_norm == ops::QkNorm::kVector;
  const auto read = [&](absl::string_view name, int heads, ops::Vector* vector) -> absl::Status {
    const int64_t size = int64_t{plan.head_dim} * (whole ? heads : 1);
    TOKEND_ASSIGN_OR_RETURN(*vector, reader_.tensors().GetVector(Name(name), size));
    return absl::OkStatus();
  };
  TOKEND_RETURN_IF_ERROR(read("attn_q_norm.weight", plan.heads, &layer().query_norm));
  return read("attn_k_norm.weight", plan.kv_heads, &layer().key_norm);
}

absl::Status BlockReader::ReadAttention(Bias qkv_bias, Bias output_bias) const {
  const ops::ModelPlan& plan = reader_.plan();
  const int64_t query = int64_t{plan.heads} * plan.head_dim;
  const int64_t kv = int64_t{plan.kv_heads} * plan.head_dim;
  if (Has("attn_qkv.weight")) {
    TOKEND_ASSIGN_OR_RETURN(
        const std::vector<ops::Linear> parts,
        reader_.tensors().GetParts(Name("attn_qkv"), {query, kv, kv}, plan.width, qkv_bias));
    layer().query = parts[0];
    layer().key = parts[1];
    layer().value = parts[2];
  } else {
    TOKEND_RETURN_IF_ERROR(ReadLinear("attn_q", query, plan.width, qkv_bias, &layer().query));
    TOKEND_RETURN_IF_ERROR(ReadLinear("attn_k", kv, plan.width, qkv_bias, &layer().key));
    TOKEND_RETURN_IF_ERROR(ReadLinear("attn_v", kv, plan.width, qkv_bias, &layer().value));
  }
  return ReadLinear("attn_output", plan.width, query, output_bias, &layer().attention_output);
}

absl::Status BlockReader::ReadGatedFfn(Bias bias) const {
  const ops::ModelPlan& plan = reader_.plan();
  TOKEND_RETURN_IF_ERROR(ReadLinear("ffn_gate", plan.ffn_width, plan.width, bias, &layer().gate));
  return ReadPlainFfn(bias);
}

absl::Status BlockReader::ReadFusedFfn() const {
  if (Has("ffn_gate.weight")) return ReadGatedFfn(Bias::kNone);
  const ops::ModelPlan& plan = reader_.plan();
  TOKEND_ASSIGN_OR_RETURN(
      const std::vector<ops::Linear> parts,
      reader_.tensors().GetParts(Name("ffn_up"), {plan.ffn_width, plan.ffn_width}, plan.width,
                                 Bias::kNone));
  layer().gate = parts[0];
  layer().up = parts[1];
  return ReadLinear("ffn_down", plan.width, plan.ffn_width, Bias::kNone, &layer().down);
}

absl::Status BlockReader::ReadPlainFfn(Bias bias) const {
  const ops::ModelPlan& plan = reader_.plan();
  TOKEND_RETURN_IF_ERROR(ReadLinear("ffn_up", plan.ffn_width, plan.width, bias, &layer().up));
  return ReadLinear("ffn_down", plan.width, plan.ffn_width, bias, &layer().down);
}

}  // namespace tokend::model
