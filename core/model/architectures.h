// The table of architectures. A new one is one file in archs/ and one line here.
#ifndef TOKEND_CORE_MODEL_ARCHITECTURES_H_
#define TOKEND_CORE_MODEL_ARCHITECTURES_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/gguf/file.h"
#include "core/model/tensor_reader.h"
#include "core/ops/plan.h"

namespace tokend::model {

struct Architecture {
  absl::string_view name;  // general.architecture
  // Reads shapes, constants and tensors of the file into `plan`; facts worth
  // showing go to `attributes`.
  absl::Status (*build)(const gguf::File& file, TensorReader* tensors, ops::ModelPlan* plan,
                        std::map<std::string, std::string>* attributes);
};

// UNIMPLEMENTED, listing the known ones.
absl::StatusOr<const Architecture*> FindArchitecture(absl::string_view name);

// archs/llama.cc
absl::Status BuildLlama(const gguf::File& file, TensorReader* tensors, ops::ModelPlan* plan,
                        std::map<std::string, std::string>* attributes);

}  // namespace tokend::model

#endif  // TOKEND_CORE_MODEL_ARCHITECTURES_H_
