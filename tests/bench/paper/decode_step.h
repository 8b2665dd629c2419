#ifndef TOKEND_TESTS_BENCH_PAPER_DECODE_STEP_H_
#define TOKEND_TESTS_BENCH_PAPER_DECODE_STEP_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ops/plan.h"
#include "tests/bench/paper/code_facts.h"
#include "tests/bench/paper/launch_time.h"
#include "tests/bench/paper/target.h"

namespace tokend::bench {

struct PaperStep {
  int rows = 1;           // sequences
  int64_t context = 512;  // tokens of each
};

// Bytes of live KV of all layers, f16.
double KvBytes(const ops::ModelPlan& plan, const PaperStep& step);

// The launches of a decode step in order, as the backend's own code makes them for the
// target: it runs in the stand-in, which notes launches and runs none.
absl::StatusOr<std::vector<PaperLaunch>> DecodeLaunches(const ops::ModelPlan& plan,
                                                        const PaperStep& step, const Target& target,
                                                        const CodeFacts& facts);

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_PAPER_DECODE_STEP_H_
