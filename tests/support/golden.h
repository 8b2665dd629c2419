// Reference outputs of a model, as the generators of goldens write them in JSON.
#ifndef TOKEND_TESTS_SUPPORT_GOLDEN_H_
#define TOKEND_TESTS_SUPPORT_GOLDEN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tokend::testing {

struct GoldenCase {
  std::string name;
  std::vector<int32_t> ids;
  // By position in `ids`: [vocabulary_size].
  std::map<int64_t, std::vector<double>> logits;
  std::vector<int32_t> greedy;
  // Best minus second best logit before each of `greedy`.
  std::vector<double> gap;
};

// ../shared/tiny_models/NAME.gguf, small models with random weights and their
// logits by float32 `transformers`.
struct TinyModel {
  std::string gguf_path;
  std::vector<GoldenCase> cases;
};

// Absent where that folder is missing: skip, visibly.
std::optional<TinyModel> LoadTinyModel(const std::string& name);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_GOLDEN_H_
