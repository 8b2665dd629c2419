#include "core/base/dtype.h"

#include "core/base/check.h"

namespace tokend::base {
namespace {

// Bytes of a block: codes, then scales and minima, as the format defines them.
constexpr WeightTypeInfo kTypes[] = {
    {WeightType::kF32, "F32", 1, 4},
    {WeightType::kF16, "F16", 1, 2},
    {WeightType::kQ4_0, "Q4_0", 32, 2 + 16},
    {WeightType::kQ4_1, "Q4_1", 32, 4 + 16},
    {WeightType::kQ5_0, "Q5_0", 32, 2 + 4 + 16},
    {WeightType::kQ5_1, "Q5_1", 32, 4 + 4 + 16},
    {WeightType::kQ8_0, "Q8_0", 32, 2 + 32},
    {WeightType::kQ4_K, "Q4_K", 256, 4 + 12 + 128},
    {WeightType::kQ5_K, "Q5_K", 256, 4 + 12 + 32 + 128},
    {WeightType::kQ6_K, "Q6_K", 256, 128 + 64 + 16 + 2},
    {WeightType::kBF16, "BF16", 1, 2},
};

}  // namespace

const WeightTypeInfo* FindWeightType(uint32_t gguf_type) {
  for (const WeightTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == gguf_type) return &info;
  }
  return nullptr;
}

const WeightTypeInfo& GetWeightType(WeightType type) {
  const WeightTypeInfo* info = FindWeightType(static_cast<uint32_t>(type));
  TOKEND_CHECK(info != nullptr);
  return *info;
}

absl::string_view KvDtypeName(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kF32:
      return "f32";
    case KvDtype::kF16:
      return "f16";
    case KvDtype::kInt8:
      return "int8";
  }
  return "";
}

std::optional<KvDtype> ParseKvDtype(absl::string_view name) {
  for (KvDtype dtype : {KvDtype::kF32, KvDtype::kF16, KvDtype::kInt8}) {
    if (KvDtypeName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

absl::string_view ActivationsName(Activations activations) {
  switch (activations) {
    case Activations::kF32:
      return "f32";
    case Activations::kInt16:
      return "int16";
    case Activations::kInt8:
      return "int8";
    case Activations::kF16:
      return "f16";
  }
  return "";
}

std::optional<Activations> ParseActivations(absl::string_view name) {
  for (Activations a :
       {Activations::kF32, Activations::kInt16, Activations::kInt8, Activations::kF16}) {
    if (ActivationsName(a) == name) return a;
  }
  return std::nullopt;
}

}  // namespace tokend::base
