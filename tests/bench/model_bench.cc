#include "tests/bench/model_bench.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/status_macros.h"

namespace tokend::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using testing::PagedRunner;

constexpr int kPageTokens = 16;
constexpr int kPromptChunk = 512;

double Seconds(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

absl::StatusOr<double> MedianOf(int runs, absl::FunctionRef<absl::StatusOr<double>()> measure) {
  std::vector<double> rates;
  for (int run = 0; run < runs; ++run) {
    TOKEND_ASSIGN_OR_RETURN(const double rate, measure());
    rates.push_back(rate);
  }
  return Median(std::move(rates));
}

absl::StatusOr<std::unique_ptr<ModelBench>> ModelBench::Create(const ops::ModelPlan& plan,
                                                               int threads,
                                                               base::Activations activations,
                                                               base::KvDtype kv_dtype,
                                                               int64_t max_tokens) {
  cpu::CpuBackendOptions options;
  options.threads = threads;
  options.activations = activations;
  options.kv_dtype = kv_dtype;
  options.page_tokens = kPageTokens;
  options.profile = true;
  auto bench = std::unique_ptr<ModelBench>(new ModelBench);
  bench->vocabulary_ = plan.vocabulary_size;
  TOKEND_ASSIGN_OR_RETURN(bench->backend_, cpu::CpuBackend::Create(plan, options));
  const auto layers = static_cast<int>(plan.layers.size());
  const int64_t pages = layers * (max_tokens / kPageTokens + 1);
  TOKEND_RETURN_IF_ERROR(bench->backend_->AllocateArena(pages));
  bench->runner_ =
      std::make_unique<PagedRunner>(bench->backend_.get(), layers, kPageTokens, pages, /*seed=*/1);
  return bench;
}

absl::StatusOr<double> ModelBench::Prefill(int tokens) {
  PagedRunner::Sequence sequence = runner_->NewSequence();
  const auto start = SteadyClock::now();
  TOKEND_RETURN_IF_ERROR(FeedPrompt(&sequence, tokens));
  const double rate = tokens / Seconds(start);
  runner_->Release(&sequence);
  return rate;
}

absl::StatusOr<double> ModelBench::Decode(int batch, int context, int steps) {
  std::vector<PagedRunner::Sequence> sequences(static_cast<size_t>(batch), runner_->NewSequence());
  std::vector<PagedRunner::Sequence*> all;
  for (PagedRunner::Sequence& sequence : sequences) {
    TOKEND_RETURN_IF_ERROR(FeedPrompt(&sequence, context));
    all.push_back(&sequence);
  }
  const std::vector<int32_t> token = Tokens(1);
  const auto start = SteadyClock::now();
  for (int step = 0; step < steps; ++step) TOKEND_RETURN_IF_ERROR(Feed(all, token));
  const double rate = batch * steps / Seconds(start);
  for (PagedRunner::Sequence& sequence : sequences) runner_->Release(&sequence);
  return rate;
}

absl::Status ModelBench::Fill(int64_t tokens) {
  std::vector<PagedRunner::Sequence> sequences;
  for (int64_t at = 0; at < tokens; at += kPromptChunk) {
    sequences.push_back(runner_->NewSequence());
    const auto count = static_cast<int>(std::min<int64_t>(kPromptChunk, tokens - at));
    TOKEND_RETURN_IF_ERROR(FeedPrompt(&sequences.back(), count));
  }
  for (PagedRunner::Sequence& sequence : sequences) runner_->Release(&sequence);
  return absl::OkStatus();
}

absl::Status ModelBench::FeedPrompt(PagedRunner::Sequence* sequence, int tokens) {
  for (int at = 0; at < tokens; at += kPromptChunk) {
    TOKEND_RETURN_IF_ERROR(Feed({sequence}, Tokens(std::min(kPromptChunk, tokens - at))));
  }
  return absl::OkStatus();
}

// Ids spread over the vocabulary: the embedding's rows are not all in cache.
std::vector<int32_t> ModelBench::Tokens(int count) const {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>((i * 7919 + 13) % vocabulary_));
  }
  return tokens;
}

absl::Status ModelBench::Feed(const std::vector<PagedRunner::Sequence*>& sequences,
                              const std::vector<int32_t>& tokens) {
  std::vector<PagedRunner::Feed> feeds;
  for (PagedRunner::Sequence* sequence : sequences) feeds.push_back({sequence, tokens});
  return runner_->Step(feeds).status();
}

}  // namespace tokend::bench
