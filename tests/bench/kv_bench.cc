// What the KV cache buys, and what it takes.
#include <sys/prctl.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/file.h"
#include "core/model/model.h"
#include "tests/bench/bench.h"
#include "tests/bench/model_bench.h"

namespace tokend::bench {
namespace {

using base::Activations;
using base::KvDtype;

constexpr int kRuns = 3;
constexpr int kContexts[] = {512, 1024};
constexpr int kDecodeSteps = 32;
constexpr int kBatch = 4;
constexpr int kBatchContext = 256;
constexpr int64_t kMaxTokens = kBatch * (512 + kDecodeSteps);
// Two arenas differ by so many tokens, and the memory of the process by their KV.
constexpr int64_t kSmallArena = 512;
constexpr int64_t kArenaTokens = 4096;
constexpr double kMostMemoryError = 0.01;

// The next token behind `context` tokens: one row over the cache, or all rows anew.
absl::Status ReportReuse(ModelBench* bench, Report* report) {
  for (const int context : kContexts) {
    TOKEND_ASSIGN_OR_RETURN(const double decode, MedianOf(kRuns, [&] {
                              return bench->Decode(1, context, kDecodeSteps);
                            }));
    TOKEND_ASSIGN_OR_RETURN(const double prefill,
                            MedianOf(kRuns, [&] { return bench->Prefill(context + 1); }));
    const double cached = 1 / decode;
    const double recomputed = (context + 1) / prefill;
    report->Add(absl::StrCat("cached_context_", context), 1e3 * cached, "ms/token");
    report->Add(absl::StrCat("recomputed_context_", context), 1e3 * recomputed, "ms/token");
    report->Add(absl::StrCat("cache_speedup_context_", context), recomputed / cached, "x");
  }
  return absl::OkStatus();
}

absl::Status ReportBatch(ModelBench* bench, Report* report) {
  const auto rate = [&](int batch) {
    return MedianOf(kRuns,
                    [bench, batch] { return bench->Decode(batch, kBatchContext, kDecodeSteps); });
  };
  TOKEND_ASSIGN_OR_RETURN(const double alone, rate(1));
  TOKEND_ASSIGN_OR_RETURN(const double batched, rate(kBatch));
  report->Add(absl::StrCat("requests_", kBatch, "_one_by_one"), alone, "tokens/s");
  report->Add(absl::StrCat("requests_", kBatch, "_batched"), batched, "tokens/s");
  report->Add("batch_speedup", batched / alone, "x");
  return absl::OkStatus();
}

// Anonymous memory that this process has, exactly: the kernel walks the page
// tables for it, where its counters lag behind by CPU.
absl::StatusOr<int64_t> AnonymousBytes() {
  std::ifstream in("/proc/self/smaps_rollup");
  std::string word;
  int64_t kib = 0;
  while (in >> word) {
    if (word == "Anonymous:" && in >> kib) return kib * 1024;
  }
  return absl::UnavailableError("/proc/self/smaps_rollup does not say what is resident");
}

absl::StatusOr<int64_t> BytesWithFullArena(const ops::ModelPlan& plan, int threads, KvDtype dtype,
                                           int64_t tokens) {
  TOKEND_ASSIGN_OR_RETURN(const auto bench,
                          ModelBench::Create(plan, threads, Activations::kInt16, dtype, tokens));
  TOKEND_RETURN_IF_ERROR(bench->Fill(tokens));
  return AnonymousBytes();
}

// Keys and values, and for int8 an f16 scale of each head's vector.
double FormulaBytesPerToken(const ops::ModelPlan& plan, KvDtype dtype) {
  const int element = dtype == KvDtype::kF32 ? 4 : dtype == KvDtype::kF16 ? 2 : 1;
  const int scale = dtype == KvDtype::kInt8 ? 2 : 0;
  return 2.0 * static_cast<double>(plan.layers.size()) * plan.kv_heads *
         (plan.head_dim * element + scale);
}

absl::Status ReportMemory(const ops::ModelPlan& plan, int threads, Report* report) {
  // Huge pages would round either arena up to 2 MiB.
  if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) {
    return absl::UnavailableError("cannot switch huge pages off for this process");
  }
  const absl::Cleanup restore = [] { prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); };
  std::string off;
  for (const KvDtype dtype : {KvDtype::kF32, KvDtype::kF16, KvDtype::kInt8}) {
    TOKEND_ASSIGN_OR_RETURN(const int64_t small,
                            BytesWithFullArena(plan, threads, dtype, kSmallArena));
    TOKEND_ASSIGN_OR_RETURN(const int64_t large,
                            BytesWithFullArena(plan, threads, dtype, kSmallArena + kArenaTokens));
    const double measured = static_cast<double>(large - small) / kArenaTokens;
    const double formula = FormulaBytesPerToken(plan, dtype);
    const std::string name(base::KvDtypeName(dtype));
    report->Add(name + "_measured", measured / 1e3, "kB/token");
    report->Add(name + "_formula", formula / 1e3, "kB/token");
    report->Add(name + "_error", 100 * (measured / formula - 1), "%");
    if (std::abs(measured / formula - 1) > kMostMemoryError) absl::StrAppend(&off, " ", name);
  }
  if (off.empty()) return absl::OkStatus();
  return absl::InternalError("memory per token is off its formula by more than 1 %:" + off);
}

}  // namespace

absl::Status RunKv(const Options& options, Report* report) {
  if (options.model_path.empty()) return absl::InvalidArgumentError("needs --model FILE");
  TOKEND_ASSIGN_OR_RETURN(const auto file, gguf::File::Open(options.model_path));
  TOKEND_ASSIGN_OR_RETURN(const auto model, model::Model::Load(*file, {}));
  {
    TOKEND_ASSIGN_OR_RETURN(const auto bench,
                            ModelBench::Create(model->plan(), options.threads, Activations::kInt16,
                                               KvDtype::kF16, kMaxTokens));
    TOKEND_RETURN_IF_ERROR(ReportReuse(bench.get(), report));
    TOKEND_RETURN_IF_ERROR(ReportBatch(bench.get(), report));
  }
  return ReportMemory(model->plan(), options.threads, report);
}

}  // namespace tokend::bench
