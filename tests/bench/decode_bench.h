#ifndef TOKEND_TESTS_BENCH_DECODE_BENCH_H_
#define TOKEND_TESTS_BENCH_DECODE_BENCH_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tokend::bench {

// The bare CPU backend on a model file: prefill, decode at several batch sizes
// and context lengths, and where the time of a decode step goes. Each number is
// the median of a few runs.
absl::Status RunDecodeBench(
    const std::string& model_file, int threads,
    absl::FunctionRef<void(absl::string_view name, double value, absl::string_view unit)> report);

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_DECODE_BENCH_H_
