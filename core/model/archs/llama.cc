// `llama`: Llama 1 to 3.3, Mistral, SmolLM and their kin. Rope in pairs
// (2i, 2i + 1): converters permute the rows of Q and K to that order.
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/model/architectures.h"

namespace tokend::model {
namespace {

constexpr float kDefaultRopeBase = 10000;

std::string Key(absl::string_view name) { return absl::StrCat("llama.", name); }

// A count from the file that sizes something: at least 1, and small enough that
// products of two stay far from overflow.
absl::StatusOr<int64_t> GetCount(const gguf::File& file, absl::string_view name) {
  constexpr uint64_t kMost = 1 << 24;
  TOKEND_ASSIGN_OR_RETURN(const uint64_t value, file.GetU64(Key(name)));
  if (value < 1 || value > kMost) {
    return gguf::Damaged(absl::StrCat("key ", gguf::Quoted(Key(name))),
                         absl::StrCat("is ", value, ", expected 1 to ", kMost));
  }
  return static_cast<int64_t>(value);
}

absl::StatusOr<int64_t> GetCountOr(const gguf::File& file, absl::string_view name,
                                   int64_t fallback) {
  if (!file.Has(Key(name))) return fallback;
  return GetCount(file, name);
}

absl::Status Inconsistent(absl::string_view name, int64_t value, absl::string_view problem) {
  return gguf::Damaged(absl::StrCat("key ", gguf::Quoted(Key(name))),
                       absl::StrCat("is ", value, "; ", problem));
}

absl::Status ReadShapes(const gguf::File& file, ops::ModelPlan* plan, int64_t* layers) {
  TOKEND_ASSIGN_OR_RETURN(plan->width, GetCount(file, "embedding_length"));
  TOKEND_ASSIGN_OR_RETURN(plan->ffn_width, GetCount(file, "feed_forward_length"));
  TOKEND_ASSIGN_OR_RETURN(plan->context_tokens, GetCount(file, "context_length"));
  TOKEND_ASSIGN_OR_RETURN(*layers, GetCount(file, "block_count"));
  TOKEND_ASSIGN_OR_RETURN(const int64_t heads, GetCount(file, "attention.head_count"));
  TOKEND_ASSIGN_OR_RETURN(const int64_t kv_heads,
                          GetCountOr(file, "attention.head_count_kv", heads));
  if (heads % kv_heads != 0) {
    return Inconsistent("attention.head_count_kv", kv_heads,
                        absl::StrCat("does not divide the ", heads, " heads"));
  }
  if (!file.Has(Key("attention.key_length")) && plan->width % heads != 0) {
    return Inconsistent("attention.head_count", heads,
                        absl::StrCat("does not divide the width ", plan->width));
  }
  TOKEND_ASSIGN_OR_RETURN(const int64_t head_dim,
                          GetCountOr(file, "attention.key_length", plan->width / heads));
  TOKEND_ASSIGN_OR_RETURN(const int64_t value_dim,
                          GetCountOr(file, "attention.value_length", head_dim));
  if (value_dim != head_dim) {
    return gguf::Unsupported(absl::StrCat("key ", gguf::Quoted(Key("attention.value_length"))),
                             "differs from attention.key_length");
  }
  TOKEND_ASSIGN_OR_RETURN(const uint32_t experts, file.GetU32Or(Key("expert_count"), 0));
  if (experts > 0) {
    return gguf::Unsupported(absl::StrCat("key ", gguf::Quoted(Key("expert_count"))),
                             "mixture-of-experts models are not supported");
  }
  plan->heads = static_cast<int>(heads);
  plan->kv_heads = static_cast<int>(kv_heads);
  plan->head_dim = static_cast<int>(head_dim);
  plan->attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  TOKEND_ASSIGN_OR_RETURN(plan->norm_epsilon, file.GetF32(Key("attention.layer_norm_rms_epsilon")));
  if (!(plan->norm_epsilon > 0) || plan->norm_epsilon > 1) {
    return gguf::Damaged(
        absl::StrCat("key ", gguf::Quoted(Key("attention.layer_norm_rms_epsilon"))),
        absl::StrCat("is ", plan->norm_epsilon, ", expected (0, 1]"));
  }
  return absl::OkStatus();
}

// Angle of pair i per position: base^(-2i / dims), divided by the linear scaling
// factor and by the file's own factor for that pair (rope_freqs.weight: Llama 3's
// scaling, 1 where a frequency is untouched).
absl::Status ReadRope(const gguf::File& file, TensorReader* tensors, ops::ModelPlan* plan,
                      std::map<std::string, std::string>* attributes) {
  TOKEND_ASSIGN_OR_RETURN(const int64_t dims,
                          GetCountOr(file, "rope.dimension_count", plan->head_dim));
  if (dims > plan->head_dim || dims % 2 != 0) {
    return Inconsistent("rope.dimension_count", dims,
                        absl::StrCat("expected even and at most ", plan->head_dim));
  }
  TOKEND_ASSIGN_OR_RETURN(const float base, file.GetF32Or(Key("rope.freq_base"), kDefaultRopeBase));
  if (!(base > 0)) {
    return gguf::Damaged(absl::StrCat("key ", gguf::Quoted(Key("rope.freq_base"))),
                         absl::StrCat("is ", base, ", expected above 0"));
  }
  double factor = 1;
  TOKEND_ASSIGN_OR_RETURN(const absl::string_view scaling,
                          file.GetStringOr(Key("rope.scaling.type"), "none"));
  if (scaling == "linear") {
    TOKEND_ASSIGN_OR_RETURN(factor, file.GetF32(Key("rope.scaling.factor")));
    if (!(factor > 0)) {
      return gguf::Damaged(absl::StrCat("key ", gguf::Quoted(Key("rope.scaling.factor"))),
                           absl::StrCat("is ", factor, ", expected above 0"));
    }
    (*attributes)["rope_scaling"] = absl::StrCat("linear, ", factor);
  } else if (scaling != "none") {
    return gguf::Unsupported(absl::StrCat("key ", gguf::Quoted(Key("rope.scaling.type"))),
                             absl::StrCat("is ", gguf::Quoted(scaling), "; known: none, linear"));
  }
  TOKEND_ASSIGN_OR_RETURN(const ops::Vector factors,
                          tensors->GetOptionalVector("rope_freqs.weight", dims / 2));
  if (factors != nullptr) (*attributes)["rope_scaling"] = "llama3, factors in the file";
  ops::Rope& rope = plan->ropes.emplace_back();
  rope.pairing = ops::RopePairing::kInterleaved;
  rope.dims = static_cast<int>(dims);
  for (int64_t i = 0; i < dims / 2; ++i) {
    const double own = factors == nullptr ? 1 : factors[i];
    if (!(own > 0) || own > std::numeric_limits<float>::max()) {
      return gguf::Damaged("tensor 'rope_freqs.weight'",
                           absl::StrCat("element ", i, " is ", own, ", expected above 0"));
    }
    rope.inverse_frequencies.push_back(
        std::pow(static_cast<double>(base),
                 -2.0 * static_cast<double>(i) / static_cast<double>(dims)) /
        (factor * own));
  }
  return absl::OkStatus();
}

absl::StatusOr<ops::LayerPlan> ReadLayer(int64_t index, const ops::ModelPlan& plan,
                                         TensorReader* tensors) {
  const std::string block = absl::StrCat("blk.", index, ".");
  const auto name = [&block](absl::string_view tensor) { return absl::StrCat(block, tensor); };
  const int64_t query = int64_t{plan.heads} * plan.head_dim;
  const int64_t kv = int64_t{plan.kv_heads} * plan.head_dim;
  ops::LayerPlan layer;
  TOKEND_ASSIGN_OR_RETURN(layer.attention_norm.weight,
                          tensors->GetVector(name("attn_norm.weight"), plan.width));
  TOKEND_ASSIGN_OR_RETURN(layer.query, tensors->GetLinear(name("attn_q"), query, plan.width));
  TOKEND_ASSIGN_OR_RETURN(layer.key, tensors->GetLinear(name("attn_k"), kv, plan.width));
  TOKEND_ASSIGN_OR_RETURN(layer.value, tensors->GetLinear(name("attn_v"), kv, plan.width));
  TOKEND_ASSIGN_OR_RETURN(layer.attention_output,
                          tensors->GetLinear(name("attn_output"), plan.width, query));
  TOKEND_ASSIGN_OR_RETURN(layer.ffn_norm.weight,
                          tensors->GetVector(name("ffn_norm.weight"), plan.width));
  TOKEND_ASSIGN_OR_RETURN(layer.gate,
                          tensors->GetLinear(name("ffn_gate"), plan.ffn_width, plan.width));
  TOKEND_ASSIGN_OR_RETURN(layer.up, tensors->GetLinear(name("ffn_up"), plan.ffn_width, plan.width));
  TOKEND_ASSIGN_OR_RETURN(layer.down,
                          tensors->GetLinear(name("ffn_down"), plan.width, plan.ffn_width));
  return layer;
}

}  // namespace

absl::Status BuildLlama(const gguf::File& file, TensorReader* tensors, ops::ModelPlan* plan,
                        std::map<std::string, std::string>* attributes) {
  int64_t layers = 0;
  TOKEND_RETURN_IF_ERROR(ReadShapes(file, plan, &layers));
  TOKEND_RETURN_IF_ERROR(ReadRope(file, tensors, plan, attributes));
  TOKEND_ASSIGN_OR_RETURN(const gguf::TensorInfo* embedding, file.GetTensor("token_embd.weight"));
  plan->vocabulary_size = static_cast<int64_t>(embedding->rows());
  TOKEND_ASSIGN_OR_RETURN(
      plan->embedding, tensors->GetMatrix("token_embd.weight", plan->vocabulary_size, plan->width));
  for (int64_t i = 0; i < layers; ++i) {
    TOKEND_ASSIGN_OR_RETURN(ops::LayerPlan layer, ReadLayer(i, *plan, tensors));
    plan->layers.push_back(layer);
  }
  TOKEND_ASSIGN_OR_RETURN(plan->output_norm.weight,
                          tensors->GetVector("output_norm.weight", plan->width));
  if (file.FindTensor("output.weight") == nullptr) {
    plan->output.weight = plan->embedding;
    return absl::OkStatus();
  }
  TOKEND_ASSIGN_OR_RETURN(plan->output,
                          tensors->GetLinear("output", plan->vocabulary_size, plan->width));
  return absl::OkStatus();
}

}  // namespace tokend::model
