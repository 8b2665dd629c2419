#ifndef TOKEND_TESTS_BENCH_DEVICE_STEP_FEEDER_H_
#define TOKEND_TESTS_BENCH_DEVICE_STEP_FEEDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/base/page_id.h"
#include "core/ops/backend.h"
#include "core/ops/plan.h"
#include "core/ops/sampling_params.h"

namespace tokend::bench {

// Steps of sequences that keep their pages, so that nothing but the backend takes
// time. Pages lie scattered through the arena.
class StepFeeder {
 public:
  struct Options {
    int sequences = 1;
    int64_t tokens = 1;  // of each sequence, at most
    int page_tokens = 16;
  };

  // What `options` takes of the arena.
  static int64_t Pages(const ops::ModelPlan& plan, const Options& options);

  // `backend`, with that arena, and `plan` outlive it.
  StepFeeder(ops::Backend* backend, const ops::ModelPlan& plan, const Options& options);

  // One step: `rows` tokens of each of the first `sequences`, and what comes behind each
  // one's last: a token if the backend draws, else logits.
  absl::Status Step(int sequences, int rows);
  // Tokens of each of the first `sequences` up to `position`, at most `chunk` of one
  // sequence a step.
  absl::Status Fill(int sequences, int64_t position, int chunk);
  // The next token of every sequence is at `position`, behind what stood there.
  void Rewind(int64_t position);

  int64_t position(int sequence) const { return positions_[static_cast<size_t>(sequence)]; }

 private:
  void AddSequence(int sequence, int rows);
  absl::Status Run();

  ops::Backend* const backend_;
  const ops::ModelPlan& plan_;
  const Options options_;
  std::vector<int64_t> positions_;             // [sequence]
  std::vector<std::vector<ops::LayerKv>> kv_;  // [sequence][layer]
  std::vector<base::PageId> pages_;            // [sequence][layer][logical page]
  std::vector<int32_t> tokens_, logit_rows_;   // of the step under way
  std::vector<ops::StepSequence> sequences_;
  const bool draws_tokens_;
  const ops::SamplingParams sampling_;
  std::vector<ops::TokenDraw> draws_;
  uint64_t next_token_ = 13;
};

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_DEVICE_STEP_FEEDER_H_
