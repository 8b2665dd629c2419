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
  int64_t context_tokens = 0;  // to be served; 0: the file's own
  std::vector<GoldenCase> cases;
};

// Their names. A name with "_short" behind it is the same file with the cases of its
// short rope factors, at a context for which those hold.
std::vector<std::string> TinyModelNames();

// Without cases whose attention is not the file's. Absent where that folder is missing:
// skip, visibly.
std::optional<TinyModel> LoadTinyModel(const std::string& name);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_GOLDEN_H_
