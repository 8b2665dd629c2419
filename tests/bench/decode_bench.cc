#include "tests/bench/decode_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/cpu/cpu_backend.h"
#include "core/gguf/file.h"
#include "core/model/model.h"
#include "tests/support/paged_runner.h"

namespace tokend::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using testing::PagedRunner;

constexpr int kRuns = 3;
constexpr int kPromptTokens = 512;
constexpr int kDecodeSteps = 64;
constexpr int kMaxBatch = 8;
constexpr int kLongContext = 4096;
constexpr int kPageTokens = 16;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  static absl::StatusOr<std::unique_ptr<Bench>> Create(const ops::ModelPlan& plan, int threads,
                                                       base::Activations activations,
                                                       base::KvDtype kv_dtype) {
    cpu::CpuBackendOptions options;
    options.threads = threads;
    options.activations = activations;
    options.kv_dtype = kv_dtype;
    options.page_tokens = kPageTokens;
    options.profile = true;
    auto bench = std::unique_ptr<Bench>(new Bench);
    bench->vocabulary_ = plan.vocabulary_size;
    TOKEND_ASSIGN_OR_RETURN(bench->backend_, cpu::CpuBackend::Create(plan, options));
    const auto layers = static_cast<int>(plan.layers.size());
    const int64_t tokens = kLongContext + kMaxBatch * (kRuns * kDecodeSteps + kPageTokens) + 512;
    const int64_t pages = layers * (tokens / kPageTokens);
    TOKEND_RETURN_IF_ERROR(bench->backend_->AllocateArena(pages));
    bench->runner_ = std::make_unique<PagedRunner>(bench->backend_.get(), layers, kPageTokens,
                                                   pages, /*seed=*/1);
    return bench;
  }

  // Tokens/s over one prompt from an empty cache.
  absl::StatusOr<double> Prefill(int count) {
    std::vector<double> rates;
    const std::vector<int32_t> tokens = Tokens(count);
    for (int run = 0; run < kRuns; ++run) {
      PagedRunner::Sequence sequence = runner_->NewSequence();
      const auto start = SteadyClock::now();
      TOKEND_RETURN_IF_ERROR(Feed({&sequence}, tokens));
      rates.push_back(count / Seconds(start));
      runner_->Release(&sequence);
    }
    return Median(std::move(rates));
  }

  // Tokens/s of `batch` sequences together, each behind `context` tokens.
  absl::StatusOr<double> Decode(int batch, int context) {
    std::vector<PagedRunner::Sequence> sequences(static_cast<size_t>(batch),
                                                 runner_->NewSequence());
    std::vector<PagedRunner::Sequence*> all;
    for (PagedRunner::Sequence& sequence : sequences) {
      for (int at = 0; at < context; at += kPromptTokens) {
        TOKEND_RETURN_IF_ERROR(Feed({&sequence}, Tokens(std::min(kPromptTokens, context - at))));
      }
      all.push_back(&sequence);
    }
    std::vector<double> rates;
    const std::vector<int32_t> token = Tokens(1);
    for (int run = 0; run < kRuns; ++run) {
      const auto start = SteadyClock::now();
      for (int step = 0; step < kDecodeSteps; ++step) TOKEND_RETURN_IF_ERROR(Feed(all, token));
      rates.push_back(batch * kDecodeSteps / Seconds(start));
    }
    for (PagedRunner::Sequence& sequence : sequences) runner_->Release(&sequence);
    return Median(std::move(rates));
  }

  const cpu::CpuBackend& backend() const { return *backend_; }

 private:
  Bench() = default;

  static double Seconds(SteadyClock::time_point start) {
    return std::chrono::duration<double>(SteadyClock::now() - start).count();
  }
  // Ids spread over the vocabulary: the embedding's rows are not all in cache.
  std::vector<int32_t> Tokens(int count) const {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<int32_t>((i * 7919 + 13) % vocabulary_));
    }
    return tokens;
  }
  absl::Status Feed(const std::vector<PagedRunner::Sequence*>& sequences,
                    const std::vector<int32_t>& tokens) {
    std::vector<PagedRunner::Feed> feeds;
    for (PagedRunner::Sequence* sequence : sequences) feeds.push_back({sequence, tokens});
    return runner_->Step(feeds).status();
  }

  int64_t vocabulary_ = 0;
  std::unique_ptr<cpu::CpuBackend> backend_;
  std::unique_ptr<PagedRunner> runner_;
};

constexpr std::pair<cpu::Phase, absl::string_view> kPhases[] = {
    {cpu::Phase::kEmbed, "embed"},
    {cpu::Phase::kQkv, "qkv"},
    {cpu::Phase::kStoreKv, "store_kv"},
    {cpu::Phase::kAttention, "attention"},
    {cpu::Phase::kAttentionOutput, "attention_output"},
    {cpu::Phase::kGateUp, "gate_up"},
    {cpu::Phase::kDown, "down"},
    {cpu::Phase::kLogits, "logits"},
};

}  // namespace

absl::Status RunDecodeBench(
    const std::string& model_file, int threads,
    absl::FunctionRef<void(absl::string_view, double, absl::string_view)> report) {
  TOKEND_ASSIGN_OR_RETURN(const auto file, gguf::File::Open(model_file));
  TOKEND_ASSIGN_OR_RETURN(const auto model, model::Model::Load(*file, {}));
  for (const base::Activations activations :
       {base::Activations::kInt16, base::Activations::kInt8}) {
    TOKEND_ASSIGN_OR_RETURN(
        const auto bench, Bench::Create(model->plan(), threads, activations, base::KvDtype::kF16));
    const std::string mode(base::ActivationsName(activations));
    TOKEND_ASSIGN_OR_RETURN(const double prefill, bench->Prefill(kPromptTokens));
    report(absl::StrCat(mode, "_prefill_", kPromptTokens), prefill, "tokens/s");
    const cpu::StepProfile before = bench->backend().profile();
    TOKEND_ASSIGN_OR_RETURN(const double decode, bench->Decode(1, 1));
    const cpu::StepProfile after = bench->backend().profile();
    report(absl::StrCat(mode, "_decode"), decode, "tokens/s");
    for (const auto& [phase, name] : kPhases) {
      const auto nanos = static_cast<double>(after[phase] - before[phase]);
      report(absl::StrCat(mode, "_decode_", name), nanos / 1000 / (kRuns * kDecodeSteps + 1), "us");
    }
    TOKEND_ASSIGN_OR_RETURN(const double batch, bench->Decode(kMaxBatch, 1));
    report(absl::StrCat(mode, "_decode_batch_", kMaxBatch), batch, "tokens/s");
  }
  for (const base::KvDtype kv : {base::KvDtype::kF16, base::KvDtype::kInt8}) {
    TOKEND_ASSIGN_OR_RETURN(const auto bench,
                            Bench::Create(model->plan(), threads, base::Activations::kInt16, kv));
    TOKEND_ASSIGN_OR_RETURN(const double decode, bench->Decode(1, kLongContext));
    report(absl::StrCat("kv_", base::KvDtypeName(kv), "_decode_context_", kLongContext), decode,
           "tokens/s");
  }
  return absl::OkStatus();
}

}  // namespace tokend::bench
