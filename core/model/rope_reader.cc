// The rope tables of PlanReader.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/model/plan_reader.h"

namespace tokend::model {
namespace {

constexpr float kDefaultBase = 10000;

}  // namespace

absl::StatusOr<ops::Vector> PlanReader::GetRopeFactors(absl::string_view tensor, int64_t dims) {
  TOKEND_ASSIGN_OR_RETURN(const ops::Vector factors, tensors_->GetVector(tensor, dims / 2));
  for (int64_t i = 0; i < dims / 2; ++i) {
    if (factors[i] > 0 && factors[i] <= std::numeric_limits<float>::max()) continue;
    return gguf::Damaged(absl::StrCat("tensor ", gguf::Quoted(tensor)),
                         absl::StrCat("element ", i, " is ", factors[i], ", expected above 0"));
  }
  return factors;
}

// Llama 3's scaling is a tensor of factors, and so is longrope, which has two: for
// contexts up to the original one and for longer ones. Which holds is settled by the
// context that is served, once: cached keys were rotated with it.
absl::StatusOr<ops::Vector> PlanReader::ReadRopeFactors(int64_t dims, ops::Rope* rope) {
  if (file_.FindTensor("rope_freqs.weight") != nullptr) {
    (*attributes_)["rope_scaling"] = "llama3, factors in the file";
    return GetRopeFactors("rope_freqs.weight", dims);
  }
  if (file_.FindTensor("rope_factors_long.weight") == nullptr) return nullptr;
  TOKEND_ASSIGN_OR_RETURN(const ops::Vector above,
                          GetRopeFactors("rope_factors_long.weight", dims));
  TOKEND_ASSIGN_OR_RETURN(const ops::Vector below,
                          GetRopeFactors("rope_factors_short.weight", dims));
  TOKEND_ASSIGN_OR_RETURN(const int64_t original, GetCount("rope.scaling.original_context_length"));
  const auto stretch = static_cast<double>(plan_->context_tokens) / static_cast<double>(original);
  const double magnitude =
      stretch > 1 ? std::sqrt(1 + std::log(stretch) / std::log(static_cast<double>(original))) : 1;
  TOKEND_ASSIGN_OR_RETURN(rope->magnitude,
                          GetPositiveOr("rope.scaling.attn_factor", static_cast<float>(magnitude)));
  const int64_t served = served_tokens_ > 0 ? served_tokens_ : plan_->context_tokens;
  (*attributes_)["rope_scaling"] =
      absl::StrCat("longrope, ", served > original ? "long" : "short", " factors for a context of ",
                   served, " tokens, ", original, " originally");
  return served > original ? above : below;
}

// Frequencies that turn often within the original context stay, those that turn
// seldom are divided by `factor`, with a ramp between (Peng et al. 2023, "YaRN").
absl::Status PlanReader::ScaleYarn(double base, double factor, ops::Rope* rope) {
  TOKEND_ASSIGN_OR_RETURN(const int64_t original, GetCount("rope.scaling.original_context_length"));
  TOKEND_ASSIGN_OR_RETURN(const float fast, GetPositiveOr("rope.scaling.yarn_beta_fast", 32));
  TOKEND_ASSIGN_OR_RETURN(const float slow, GetPositiveOr("rope.scaling.yarn_beta_slow", 1));
  TOKEND_ASSIGN_OR_RETURN(const float mixed,
                          file_.GetF32Or(Key("rope.scaling.yarn_ext_factor"), 1));
  TOKEND_ASSIGN_OR_RETURN(const float times, GetPositiveOr("rope.scaling.yarn_attn_factor", 1));
  // Twice the index of the pair that turns so often.
  const auto dimension = [&](double turns) {
    return rope->dims * std::log(static_cast<double>(original) / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(base));
  };
  const double begin = std::max(0.0, std::floor(dimension(fast)));
  const double end = std::min(rope->dims - 1.0, std::ceil(dimension(slow)));
  for (size_t i = 0; i < rope->inverse_frequencies.size(); ++i) {
    const double ramp =
        std::clamp((static_cast<double>(i) - begin) / std::max(end - begin, 1e-3), 0.0, 1.0);
    const double kept = (1 - ramp) * static_cast<double>(mixed);
    rope->inverse_frequencies[i] *= kept + (1 - kept) / factor;
  }
  rope->magnitude *= times * (1 + 0.1 * std::log(factor));
  return absl::OkStatus();
}

absl::Status PlanReader::ScaleRope(double base, ops::Rope* rope) {
  TOKEND_ASSIGN_OR_RETURN(const absl::string_view type,
                          file_.GetStringOr(Key("rope.scaling.type"), "none"));
  // Longrope is known by its tensors.
  if (type == "none" || type == "longrope") return absl::OkStatus();
  if (type != "linear" && type != "yarn") {
    return gguf::Unsupported(
        absl::StrCat("key ", gguf::Quoted(Key("rope.scaling.type"))),
        absl::StrCat("is ", gguf::Quoted(type), "; known: none, linear, yarn, longrope"));
  }
  TOKEND_ASSIGN_OR_RETURN(const float factor, GetPositive("rope.scaling.factor"));
  (*attributes_)["rope_scaling"] = absl::StrCat(type, ", ", factor);
  if (type == "yarn") return ScaleYarn(base, factor, rope);
  for (double& frequency : rope->inverse_frequencies) frequency /= factor;
  return absl::OkStatus();
}

// Angle of pair i per position: base^(-2i / dims), then scaled.
absl::Status PlanReader::AddRope(const RopeOptions& options) {
  TOKEND_ASSIGN_OR_RETURN(const int64_t dims, GetCountOr("rope.dimension_count", plan_->head_dim));
  if (dims > plan_->head_dim || dims % 2 != 0) {
    return Damaged("rope.dimension_count",
                   absl::StrCat("is ", dims, "; expected even and at most ", plan_->head_dim));
  }
  TOKEND_ASSIGN_OR_RETURN(const float base, GetPositiveOr(options.base_key, kDefaultBase));
  ops::Rope rope;
  rope.pairing = options.pairing;
  rope.dims = static_cast<int>(dims);
  for (int64_t i = 0; i < dims / 2; ++i) {
    rope.inverse_frequencies.push_back(std::pow(
        static_cast<double>(base), -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  }
  if (options.scaled) {
    TOKEND_ASSIGN_OR_RETURN(const ops::Vector factors, ReadRopeFactors(dims, &rope));
    for (size_t i = 0; factors != nullptr && i < rope.inverse_frequencies.size(); ++i) {
      rope.inverse_frequencies[i] /= static_cast<double>(factors[i]);
    }
    TOKEND_RETURN_IF_ERROR(ScaleRope(base, &rope));
  }
  plan_->ropes.push_back(std::move(rope));
  return absl::OkStatus();
}

}  // namespace tokend::model
