// What int8 KV, windows and heavy hitters cost in perplexity of a fixed text.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/cpu/cpu_backend.h"
#include "core/gguf/file.h"
#include "core/kv/session_store.h"
#include "core/model/model.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/bench/bench.h"
#include "tests/support/paged_runner.h"
#include "tests/support/perplexity.h"

namespace tokend::bench {
namespace {

using base::KvDtype;
using testing::PagedRunner;

constexpr char kText[] = "tests/golden/inputs/perplexity.txt";
constexpr int kPageTokens = 16;
constexpr size_t kChunk = 256;
// Positions that a windowed session sees, sinks and window together.
constexpr int64_t kBudget = 256;
constexpr int64_t kSinks = 4;
// Of the budget: pages that stay by their weight, and on average half an epoch.
constexpr int32_t kHeavyPages = 6;
constexpr int64_t kEpoch = 64;
constexpr double kMostInt8Change = 0.005;

class QualityBench {
 public:
  QualityBench(const model::Model& model, int threads, std::vector<int32_t> text)
      : model_(model), threads_(threads), text_(std::move(text)) {}

  // Perplexity of the text, every token behind all before it that `mask` shows.
  absl::StatusOr<double> Measure(KvDtype dtype, const ops::AttentionMask& mask) const {
    TOKEND_ASSIGN_OR_RETURN(
        const auto backend,
        cpu::CpuBackend::Create(model_.plan(), {.threads = threads_,
                                                .activations = base::Activations::kInt16,
                                                .kv_dtype = dtype,
                                                .page_tokens = kPageTokens}));
    const auto layers = static_cast<int>(model_.plan().layers.size());
    const int64_t pages = layers * (static_cast<int64_t>(text_.size()) / kPageTokens + 1);
    TOKEND_RETURN_IF_ERROR(backend->AllocateArena(pages));
    PagedRunner runner(backend.get(), layers, kPageTokens, pages, /*seed=*/1);
    PagedRunner::Sequence sequence = runner.NewSequence(mask);
    testing::Perplexity perplexity;
    for (size_t at = 0; at + 1 < text_.size(); at += kChunk) {
      const size_t rows = std::min(kChunk, text_.size() - 1 - at);
      TOKEND_ASSIGN_OR_RETURN(
          const std::vector<float> logits,
          runner.Run(&sequence, absl::MakeConstSpan(text_).subspan(at, rows), kChunk));
      const size_t width = logits.size() / rows;
      for (size_t row = 0; row < rows; ++row) {
        perplexity.Add(absl::MakeConstSpan(logits).subspan(row * width, width),
                       text_[at + row + 1]);
      }
    }
    return perplexity.value();
  }

  // The same in a session of this policy.
  absl::StatusOr<double> Measure(const kv::RetentionPolicy& policy) const {
    TOKEND_ASSIGN_OR_RETURN(
        const auto backend,
        cpu::CpuBackend::Create(model_.plan(), {.threads = threads_, .page_tokens = kPageTokens}));
    kv::StoreOptions options;
    options.layers = static_cast<int>(model_.plan().layers.size());
    options.page_tokens = kPageTokens;
    options.pages = options.layers * (static_cast<int64_t>(text_.size()) / kPageTokens + 1);
    options.context_tokens = model_.plan().context_tokens;
    TOKEND_RETURN_IF_ERROR(backend->AllocateArena(options.pages));
    TOKEND_ASSIGN_OR_RETURN(
        const auto store,
        kv::SessionStore::Create(options, backend.get(), base::RealClock(), base::NullObserver()));
    TOKEND_RETURN_IF_ERROR(store->CreateSession("", "text", {.retention = policy}).status());
    TOKEND_ASSIGN_OR_RETURN(const auto writer, store->Admit({.session_id = "text"}));
    TOKEND_ASSIGN_OR_RETURN(const auto branch, store->Checkout(writer.get(), {}));
    branch->Append(text_);
    branch->MatchPrefix();
    testing::Perplexity perplexity;
    while (branch->computed() + 1 < branch->tokens()) {
      const int64_t at = branch->computed();
      const int64_t rows =
          std::min<int64_t>({kChunk, branch->step_rows(), branch->tokens() - 1 - at});
      TOKEND_RETURN_IF_ERROR(branch->Prepare(rows));
      std::vector<int32_t> all(static_cast<size_t>(rows));
      std::iota(all.begin(), all.end(), 0);
      const ops::StepSequence sequence = {
          .rows = static_cast<int32_t>(rows), .position = at, .layers = branch->layers()};
      TOKEND_ASSIGN_OR_RETURN(
          const ops::StepOutput output,
          backend->Forward({.tokens = absl::MakeConstSpan(text_).subspan(at, rows),
                            .sequences = absl::MakeConstSpan(&sequence, 1),
                            .logit_rows = all}));
      const size_t width = output.logits.size() / static_cast<size_t>(rows);
      for (int64_t row = 0; row < rows; ++row) {
        perplexity.Add(output.logits.subspan(row * width, width), text_[at + row + 1]);
      }
      branch->Advance(rows);
    }
    return perplexity.value();
  }

 private:
  const model::Model& model_;
  const int threads_;
  const std::vector<int32_t> text_;
};

absl::StatusOr<std::vector<int32_t>> ReadText(const gguf::File& file) {
  std::ifstream in(kText, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in.good() || text.empty()) return absl::NotFoundError(absl::StrCat("cannot read ", kText));
  TOKEND_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::Create(file));
  return tokenizer->Encode(text, {.add_bos = true});
}

absl::Status ReportWindows(const QualityBench& bench, double full, Report* report) {
  struct Window {
    const char* name;
    ops::AttentionMask mask;
  };
  const Window windows[] = {
      {"window", {.sink_tokens = 0, .window_tokens = kBudget}},
      {"window_with_sinks", {.sink_tokens = kSinks, .window_tokens = kBudget - kSinks}}};
  for (const Window& window : windows) {
    TOKEND_ASSIGN_OR_RETURN(const double perplexity, bench.Measure(KvDtype::kF16, window.mask));
    const std::string name = absl::StrCat(window.name, "_", kBudget);
    report->Add(name, perplexity, "perplexity");
    report->Add(name + "_change", 100 * (perplexity / full - 1), "%");
  }
  // Sinks, window and pages are the budget; within an epoch it sees its tokens, too.
  const int64_t kept = kHeavyPages * kPageTokens;
  const kv::RetentionPolicy heavy = {kv::RetentionPolicy::Kind::kHeavyHitters,
                                     kSinks,
                                     kBudget - kSinks - kept - kEpoch / 2,
                                     0,
                                     kHeavyPages,
                                     kEpoch};
  TOKEND_ASSIGN_OR_RETURN(const double perplexity, bench.Measure(heavy));
  report->Add(absl::StrCat("heavy_hitters_", kBudget), perplexity, "perplexity");
  report->Add(absl::StrCat("heavy_hitters_", kBudget, "_change"), 100 * (perplexity / full - 1),
              "%");
  return absl::OkStatus();
}

}  // namespace

absl::Status RunQuality(const Options& options, Report* report) {
  if (options.model_path.empty()) return absl::InvalidArgumentError("needs --model FILE");
  TOKEND_ASSIGN_OR_RETURN(const auto file, gguf::File::Open(options.model_path));
  TOKEND_ASSIGN_OR_RETURN(const auto model, model::Model::Load(*file, {}));
  TOKEND_ASSIGN_OR_RETURN(std::vector<int32_t> text, ReadText(*file));
  report->Add("text", static_cast<double>(text.size()), "tokens");
  const QualityBench bench(*model, options.threads, std::move(text));
  TOKEND_ASSIGN_OR_RETURN(const double f32, bench.Measure(KvDtype::kF32, {}));
  TOKEND_ASSIGN_OR_RETURN(const double f16, bench.Measure(KvDtype::kF16, {}));
  TOKEND_ASSIGN_OR_RETURN(const double int8, bench.Measure(KvDtype::kInt8, {}));
  const double int8_change = int8 / f32 - 1;
  report->Add("kv_f32", f32, "perplexity");
  report->Add("kv_f16", f16, "perplexity");
  report->Add("kv_f16_change", 100 * (f16 / f32 - 1), "%");
  report->Add("kv_int8", int8, "perplexity");
  report->Add("kv_int8_change", 100 * int8_change, "%");
  TOKEND_RETURN_IF_ERROR(ReportWindows(bench, f16, report));
  if (std::abs(int8_change) < kMostInt8Change) return absl::OkStatus();
  return absl::InternalError("int8 KV changes the perplexity by 0.5 % or more");
}

}  // namespace tokend::bench
