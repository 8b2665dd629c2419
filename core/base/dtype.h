// Element types of weights (as GGUF stores them) and of the KV cache.
#ifndef TOKEND_CORE_BASE_DTYPE_H_
#define TOKEND_CORE_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace tokend::base {

// Values are GGUF's own tensor type numbers.
enum class WeightType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct WeightTypeInfo {
  WeightType type;
  absl::string_view name;  // "Q4_1"
  int block_elements;      // elements per block along the row
  int block_bytes;         // bytes per block on disk
};

// nullptr: a type that is not supported.
const WeightTypeInfo* FindWeightType(uint32_t gguf_type);
const WeightTypeInfo& GetWeightType(WeightType type);

enum class KvDtype { kF32, kF16, kInt8 };

absl::string_view KvDtypeName(KvDtype dtype);  // "f32", "f16", "int8"
std::optional<KvDtype> ParseKvDtype(absl::string_view name);

// How a backend holds activations between matmuls (see --activations): the CPU has
// kF32, kInt16 and kInt8, CUDA kF32 and kF16.
enum class Activations { kF32, kInt16, kInt8, kF16 };

absl::string_view ActivationsName(Activations activations);  // "f32", ...
std::optional<Activations> ParseActivations(absl::string_view name);

}  // namespace tokend::base

#endif  // TOKEND_CORE_BASE_DTYPE_H_
