// tests/golden/smollm2, as make_goldens.py writes it.
#ifndef TOKEND_TESTS_GOLDEN_SMOLLM2_GOLDENS_H_
#define TOKEND_TESTS_GOLDEN_SMOLLM2_GOLDENS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tokend::testing {

// All logits after ids[0..position].
struct GoldenRow {
  int64_t position = 0;
  double std = 0;
  std::vector<double> logits;  // [vocabulary_size]
};

// The reference's 20 best at one position, likeliest first.
struct GoldenTop {
  std::vector<int32_t> ids;
  std::vector<double> logprobs;
};

struct SmolLm2Prompt {
  std::string name;
  std::vector<int32_t> ids;
  std::vector<GoldenRow> rows;
  std::vector<int32_t> greedy;
  std::vector<double> gap;     // best minus second best logit before each of `greedy`
  std::vector<GoldenTop> top;  // before each of `greedy`
  // Largest error of llama.cpp among the reference's 20 best of the first token.
  double peer_first_error = 0;
};

struct SmolLm2Text {
  std::vector<int32_t> ids;
  double perplexity = 0;
  std::vector<GoldenRow> rows;
  std::vector<double> logprobs;  // of ids[i + 1] after ids[0..i]
  double peer_perplexity = 0;
  double peer_kl = 0;  // mean over `rows`
};

struct SmolLm2Goldens {
  std::vector<SmolLm2Prompt> prompts;
  SmolLm2Text text;
  double peer_mean_first_error = 0;
};

SmolLm2Goldens LoadSmolLm2Goldens();

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_GOLDEN_SMOLLM2_GOLDENS_H_
