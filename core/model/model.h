// A model file made ready for a backend: its architecture's plan, and the facts
// that a client may ask about.
#ifndef TOKEND_CORE_MODEL_MODEL_H_
#define TOKEND_CORE_MODEL_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/gguf/file.h"
#include "core/model/tensor_reader.h"
#include "core/ops/plan.h"
#include "core/ops/sampling_params.h"

namespace tokend::model {

struct ModelOptions {
  // Positions to serve, at most the file's own; 0: the file's own.
  int64_t context_tokens = 0;
};

struct ModelFacts {
  std::string name;          // general.name, or the file's name
  std::string architecture;  // general.architecture
  int64_t parameter_count = 0;
  int64_t weight_bytes = 0;  // of the tensors, as in the file
  std::string weight_type;   // the type that most parameters have
  // The file's own (general.sampling.*) or the server's; no seed, no bias.
  ops::SamplingParams default_sampling;
  // Facts worth showing, e.g. {"rope_scaling", "linear, 2"}.
  std::map<std::string, std::string> attributes;
};

// Immutable and thread-safe. Its plan points into the file until a backend has
// repacked the weights; the file must outlive the model.
class Model {
 public:
  // Errors: those of gguf/errors.h; an architecture that is not known is
  // UNIMPLEMENTED and lists the known ones. INVALID_ARGUMENT ("context_tokens") where
  // the options ask for more than the model has.
  static absl::StatusOr<std::unique_ptr<Model>> Load(const gguf::File& file,
                                                     const ModelOptions& options);

  const ops::ModelPlan& plan() const { return plan_; }
  const ModelFacts& facts() const { return facts_; }

 private:
  Model() = default;

  VectorStore vectors_;
  ops::ModelPlan plan_;
  ModelFacts facts_;
};

}  // namespace tokend::model

#endif  // TOKEND_CORE_MODEL_MODEL_H_
