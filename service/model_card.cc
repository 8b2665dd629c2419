#include "service/model_card.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/architectures.h"
#include "service/names.h"

namespace tokend::service {
namespace {

v1::Sampling ToProto(const ops::SamplingParams& in) {
  v1::Sampling out;
  out.set_temperature(in.temperature);
  out.set_top_k(in.top_k);
  out.set_top_p(in.top_p);
  out.set_min_p(in.min_p);
  out.set_repetition_penalty(in.repetition_penalty);
  out.set_presence_penalty(in.presence_penalty);
  out.set_frequency_penalty(in.frequency_penalty);
  return out;
}

}  // namespace

v1::Model DescribeModel(const model::Model& model, absl::string_view file_path,
                        base::KvDtype kv_dtype) {
  const model::ModelFacts& facts = model.facts();
  const ops::ModelPlan& plan = model.plan();
  v1::Model out;
  out.set_name(absl::StrCat("models/", ModelId(file_path)));
  out.set_architecture(facts.architecture);
  out.set_parameter_count(facts.parameter_count);
  out.set_context_length(static_cast<int32_t>(plan.context_tokens));
  out.set_vocabulary_size(static_cast<int32_t>(plan.vocabulary_size));
  out.set_layer_count(static_cast<int32_t>(plan.layers.size()));
  out.set_weight_type(facts.weight_type);
  const absl::string_view dtype = base::KvDtypeName(kv_dtype);
  out.set_kv_type(std::string(dtype));
  out.set_weight_bytes(facts.weight_bytes);
  *out.mutable_default_sampling() = ToProto(facts.default_sampling);
  for (const auto& [key, value] : facts.attributes) (*out.mutable_attributes())[key] = value;
  (*out.mutable_attributes())["general.name"] = facts.name;
  std::vector<absl::string_view> known;
  for (const model::Architecture& architecture : model::Architectures()) {
    known.push_back(architecture.name);
  }
  (*out.mutable_attributes())["known_architectures"] = absl::StrJoin(known, ", ");
  return out;
}

void CompleteModel(const std::string& fingerprint, const ops::BackendInfo& backend, int layers,
                   int page_tokens, bool heavy_hitters, const tokenizer::Tokenizer& tokenizer,
                   const tokenizer::ChatTemplate* chat, v1::Model* out) {
  out->set_fingerprint(fingerprint);
  out->set_weight_bytes(backend.weight_bytes);
  out->set_kv_bytes_per_token(backend.page_bytes * layers / page_tokens);
  for (const int32_t id : tokenizer.end_of_text_ids()) out->add_end_of_text_token_ids(id);
  if (chat != nullptr) {
    out->add_features("chat");
    (*out->mutable_attributes())["chat_template"] = std::string(chat->family());
  }
  out->add_features("sliding_window");
  out->add_features("history_tokens");
  if (heavy_hitters) out->add_features("heavy_hitters");
  if (layers > 1) out->add_features("layered");
  (*out->mutable_attributes())["device"] = backend.device;
}

}  // namespace tokend::service
