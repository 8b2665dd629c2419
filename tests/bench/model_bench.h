#ifndef TOKEND_TESTS_BENCH_MODEL_BENCH_H_
#define TOKEND_TESTS_BENCH_MODEL_BENCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/base/dtype.h"
#include "core/cpu/cpu_backend.h"
#include "core/ops/plan.h"
#include "tests/support/paged_runner.h"

namespace tokend::bench {

double Median(std::vector<double> values);
// Of so many runs; the first error, if one fails.
absl::StatusOr<double> MedianOf(int runs, absl::FunctionRef<absl::StatusOr<double>()> measure);

// The bare CPU backend on a model. Each call is one measurement.
class ModelBench {
 public:
  // Room for sequences of `max_tokens` tokens in all.
  static absl::StatusOr<std::unique_ptr<ModelBench>> Create(const ops::ModelPlan& plan, int threads,
                                                            base::Activations activations,
                                                            base::KvDtype kv_dtype,
                                                            int64_t max_tokens);

  // Tokens/s over one prompt from an empty cache.
  absl::StatusOr<double> Prefill(int tokens);

  // Tokens/s of `batch` sequences together over `steps` tokens each, each behind
  // `context` tokens.
  absl::StatusOr<double> Decode(int batch, int context, int steps);

  // Runs `tokens` tokens in sequences that are all there at once, at most 512 each.
  absl::Status Fill(int64_t tokens);

  const cpu::CpuBackend& backend() const { return *backend_; }

 private:
  ModelBench() = default;

  std::vector<int32_t> Tokens(int count) const;
  absl::Status FeedPrompt(testing::PagedRunner::Sequence* sequence, int tokens);
  absl::Status Feed(const std::vector<testing::PagedRunner::Sequence*>& sequences,
                    const std::vector<int32_t>& tokens);

  int64_t vocabulary_ = 0;
  std::unique_ptr<cpu::CpuBackend> backend_;
  std::unique_ptr<testing::PagedRunner> runner_;
};

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_MODEL_BENCH_H_
