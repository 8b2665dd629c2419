#ifndef TOKEND_TESTS_BENCH_PAPER_RECORD_STEP_H_
#define TOKEND_TESTS_BENCH_PAPER_RECORD_STEP_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/ops/plan.h"
#include "cuda_kernels/kernels/kv_layout.h"
#include "tests/bench/paper/target.h"
#include "tests/simt/control.h"

namespace tokend::bench {

// f16 pages of 16 tokens.
cuda::KvLayout PaperKv(const ops::ModelPlan& plan);

// What the CUDA backend launches for a decode step of `rows` sequences on `target`.
absl::StatusOr<std::vector<simt::LaunchRecord>> RecordDecodeStep(const ops::ModelPlan& plan,
                                                                 int rows, const Target& target);

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_PAPER_RECORD_STEP_H_
