// Decode on paper: the time of a step of a model on a part, and what is asked of it.
#ifndef TOKEND_TESTS_BENCH_PAPER_PAPER_H_
#define TOKEND_TESTS_BENCH_PAPER_PAPER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/bench/paper/code_facts.h"
#include "tests/bench/paper/decode_step.h"
#include "tests/bench/paper/launch_time.h"
#include "tests/bench/paper/target.h"
#include "tests/support/model_shapes.h"

namespace tokend::bench {

struct TimedLaunch {
  PaperLaunch launch;
  PaperTime time;
  int count = 1;  // launches of the step that are alike
};

struct PaperResult {
  std::vector<TimedLaunch> launches;  // in the order of their first
  double kernels = 0;                 // s, of the step
  double boundaries = 0;              // s
  double floor = 0;                   // s: (weights + live KV) / bandwidth

  double seconds() const { return kernels + boundaries; }
  double share() const { return floor / seconds(); }
};

enum class GoalKind {
  kFloorShare,  // at least so much of the floor, in %
  kRate,        // tokens/s at batch 1
  kBatchGain,   // tokens/s at batch 8, times those at batch 1
};

// What design asks of an H200.
struct Goal {
  const char* shape;
  testing::WeightMix mix;
  GoalKind kind;
  double at_least;
  // What is known to be missed: reached, rounded down. It may only rise, and goes when
  // the goal is met.
  double today = 0;
};
absl::Span<const Goal> Goals();

// Makes each model once.
class Paper {
 public:
  explicit Paper(CodeFacts facts) : facts_(std::move(facts)) {}

  absl::StatusOr<PaperResult> Time(const testing::ModelShape& shape, testing::WeightMix mix,
                                   const PaperStep& step, const Target& target);
  // In the goal's unit.
  absl::StatusOr<double> Reached(const Goal& goal, const Target& target);

 private:
  struct Model;
  absl::StatusOr<const Model*> Get(const testing::ModelShape& shape, testing::WeightMix mix);

  const CodeFacts facts_;
  std::map<std::string, std::shared_ptr<const Model>> models_;
};

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_PAPER_PAPER_H_
