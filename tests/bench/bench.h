// Benchmarks: functions in a table (main.cc), one file each. They print as they
// go and may be kept as JSON.
#ifndef TOKEND_TESTS_BENCH_BENCH_H_
#define TOKEND_TESTS_BENCH_BENCH_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/cpu/cpu_features.h"
#include "core/cpu/thread_pool.h"

namespace tokend::bench {

struct Options {
  int threads = 1;
  cpu::Isa isa = cpu::Isa::kPlain;
  std::string model_path;  // a GGUF file; empty: none was given
};

struct Result {
  std::string bench;
  std::string name;
  double value = 0;
  std::string unit;
};

// Collects results and prints each as it comes.
class Report {
 public:
  void Start(absl::string_view bench);
  void Add(absl::string_view name, double value, absl::string_view unit);
  const std::vector<Result>& results() const { return results_; }
  // A list of {"bench", "name", "value", "unit"}.
  absl::Status WriteJson(const std::string& path) const;

 private:
  std::string bench_;
  std::vector<Result> results_;
};

// Seconds of one call: the lower quartile of samples of a few milliseconds over
// half a second, after one call to warm up. What a neighbour does to a machine
// only ever adds time.
double SecondsPerCall(absl::FunctionRef<void()> call);

// Bytes per second that the pool reads, `bytes` at a time, from huge pages.
absl::StatusOr<double> ReadBandwidth(cpu::ThreadPool* pool, int64_t bytes);
// Multiply and add count as two. 0 where the instruction set has no such code here.
double Int8PeakOpsPerSecond(cpu::ThreadPool* pool, cpu::Isa isa);
double F32PeakOpsPerSecond(cpu::ThreadPool* pool, cpu::Isa isa);

// The machine's limits.
absl::Status RunLimits(const Options& options, Report* report);
// The matmul kernels beside these limits.
absl::Status RunKernels(const Options& options, Report* report);
// The bare CPU backend on the model file.
absl::Status RunDecode(const Options& options, Report* report);
// llama.cpp beside us on the model file.
absl::Status RunPeer(const Options& options, Report* report);
// The KV cache beside computing anew, its bytes a token, and decoding in batches.
// INTERNAL where the bytes are off their formula by more than 1 %.
absl::Status RunKv(const Options& options, Report* report);
// Perplexity by the KV's element type and under windows. INTERNAL where int8 changes
// it by 0.5 % or more.
absl::Status RunQuality(const Options& options, Report* report);
// Session calls, without a model. INTERNAL where a median is over 20 us.
absl::Status RunStore(const Options& options, Report* report);
// A MiB of letters, spaces, digits, emoji and so on as tokens, with the model's tokeniser and
// with each pre-tokeniser. INTERNAL where one takes 2 s or more.
absl::Status RunTokenizer(const Options& options, Report* report);
// Turns of one session with a sliding window over 50,000 tokens: what they cost at the
// start and at the end. INTERNAL where the end takes 1.15 times as long or more.
absl::Status RunEndless(const Options& options, Report* report);
// The cost of gRPC, and the daemon's memory.
absl::Status RunGrpc(const Options& options, Report* report);

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_BENCH_H_
