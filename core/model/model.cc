#include "core/model/model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/model/architectures.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

constexpr int64_t kMostContextTokens = 1 << 24;

// What the client gets who asks for nothing, where the file names its own.
absl::StatusOr<ops::SamplingParams> ReadSampling(const gguf::File& file, int64_t vocabulary_size) {
  ops::SamplingParams params;
  TOKEND_ASSIGN_OR_RETURN(params.temperature,
                          file.GetF32Or("general.sampling.temp", params.temperature));
  if (file.Has("general.sampling.top_k")) {
    TOKEND_ASSIGN_OR_RETURN(params.top_k, file.GetI32("general.sampling.top_k"));
  }
  TOKEND_ASSIGN_OR_RETURN(params.top_p, file.GetF32Or("general.sampling.top_p", params.top_p));
  TOKEND_ASSIGN_OR_RETURN(params.min_p, file.GetF32Or("general.sampling.min_p", params.min_p));
  TOKEND_ASSIGN_OR_RETURN(
      params.repetition_penalty,
      file.GetF32Or("general.sampling.penalty_repeat", params.repetition_penalty));
  // Files are not held to the wire's ranges; a value outside means "off" there.
  params.temperature = std::clamp(params.temperature, 0.0f, 10.0f);
  params.top_k = std::clamp<int32_t>(params.top_k, 0, static_cast<int32_t>(vocabulary_size));
  if (!(params.top_p > 0) || params.top_p > 1) params.top_p = 1;
  if (!(params.min_p >= 0) || params.min_p > 1) params.min_p = 0;
  if (!(params.repetition_penalty > 0) || params.repetition_penalty > 10) {
    params.repetition_penalty = 1;
  }
  return params;
}

std::string BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == absl::string_view::npos ? path : path.substr(slash + 1));
}

absl::Status ReadFacts(const gguf::File& file, ModelFacts* facts) {
  TOKEND_ASSIGN_OR_RETURN(const absl::string_view name, file.GetStringOr("general.name", ""));
  facts->name = name.empty() ? BaseName(file.path()) : std::string(name);
  std::map<absl::string_view, int64_t> elements_by_type;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    const auto elements = static_cast<int64_t>(tensor.elements());
    facts->parameter_count += elements;
    facts->weight_bytes += static_cast<int64_t>(tensor.data.size());
    elements_by_type[base::GetWeightType(tensor.type).name] += elements;
  }
  const auto most =
      std::max_element(elements_by_type.begin(), elements_by_type.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != elements_by_type.end()) facts->weight_type = std::string(most->first);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Load(const gguf::File& file,
                                                   const ModelOptions& options) {
  auto model = std::unique_ptr<Model>(new Model());
  ModelFacts& facts = model->facts_;
  ops::ModelPlan& plan = model->plan_;
  TOKEND_ASSIGN_OR_RETURN(const absl::string_view name, file.GetString("general.architecture"));
  TOKEND_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(name));
  facts.architecture = std::string(name);
  TensorReader tensors(file, &model->vectors_);
  PlanReader reader(file, name, options.context_tokens, &tensors, &plan, &facts.attributes);
  TOKEND_RETURN_IF_ERROR(architecture->build(&reader));
  TOKEND_RETURN_IF_ERROR(tensors.CheckAllTaken());
  if (plan.context_tokens > kMostContextTokens) {
    return gguf::Unsupported(absl::StrCat("a context of ", plan.context_tokens, " tokens"),
                             absl::StrCat("at most ", kMostContextTokens, " are supported"));
  }
  if (options.context_tokens > plan.context_tokens) {
    return base::InvalidField(
        "context_tokens",
        absl::StrCat(options.context_tokens, " is more than the model's ", plan.context_tokens));
  }
  if (options.context_tokens > 0) plan.context_tokens = options.context_tokens;
  TOKEND_RETURN_IF_ERROR(ReadFacts(file, &facts));
  TOKEND_ASSIGN_OR_RETURN(facts.default_sampling, ReadSampling(file, plan.vocabulary_size));
  return model;
}

}  // namespace tokend::model
