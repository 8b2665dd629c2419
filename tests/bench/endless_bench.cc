// A stream through a sliding window: what a token costs must not grow with what lies
// behind it.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/observer.h"
#include "core/base/status_macros.h"
#include "core/cpu/cpu_backend.h"
#include "core/gguf/file.h"
#include "core/kv/session_store.h"
#include "core/model/model.h"
#include "tests/bench/bench.h"
#include "tests/bench/model_bench.h"

namespace tokend::bench {
namespace {

constexpr char kSession[] = "camera";
constexpr int64_t kSinks = 4, kWindow = 256;
constexpr int64_t kTokens = 50000, kInput = 24, kOutput = 8;  // of all turns, of each
constexpr int64_t kPagesPerLayer = 64;
constexpr int kParts = 5;
constexpr int64_t kWarmUpTurns = 16;
constexpr double kMostGrowth = 1.15;

class Stream {
 public:
  static absl::StatusOr<std::unique_ptr<Stream>> Create(const Options& options) {
    auto stream = std::unique_ptr<Stream>(new Stream);
    TOKEND_ASSIGN_OR_RETURN(stream->file_, gguf::File::Open(options.model_path));
    TOKEND_ASSIGN_OR_RETURN(stream->model_, model::Model::Load(*stream->file_, {}));
    const ops::ModelPlan& plan = stream->model_->plan();
    TOKEND_ASSIGN_OR_RETURN(stream->backend_,
                            cpu::CpuBackend::Create(plan, {.threads = options.threads}));
    kv::StoreOptions store;
    store.layers = static_cast<int>(plan.layers.size());
    store.pages = store.layers * kPagesPerLayer;
    store.context_tokens = plan.context_tokens;
    TOKEND_RETURN_IF_ERROR(stream->backend_->AllocateArena(store.pages));
    TOKEND_ASSIGN_OR_RETURN(
        stream->store_, kv::SessionStore::Create(store, stream->backend_.get(), base::RealClock(),
                                                 base::NullObserver()));
    kv::SessionSpec spec;
    spec.retention = {kv::RetentionPolicy::Kind::kSlidingWindow, kSinks, kWindow};
    TOKEND_RETURN_IF_ERROR(stream->store_->CreateSession("", kSession, spec).status());
    return stream;
  }

  // One turn: its input in one step, then output token by token.
  absl::Status Turn() {
    TOKEND_ASSIGN_OR_RETURN(const auto writer, store_->Admit({.session_id = kSession}));
    TOKEND_ASSIGN_OR_RETURN(auto branch, store_->Checkout(writer.get(), {}));
    Append(branch.get(), kInput);
    branch->MatchPrefix();
    TOKEND_RETURN_IF_ERROR(Step(branch.get()));
    for (int64_t i = 1; i < kOutput; ++i) {
      Append(branch.get(), 1);
      TOKEND_RETURN_IF_ERROR(Step(branch.get()));
    }
    Append(branch.get(), 1);
    const int64_t end = branch->tokens();
    TOKEND_RETURN_IF_ERROR(
        store_->Commit(writer.get(), std::move(branch), {.tokens = end}).status());
    store_->Maintain();
    return absl::OkStatus();
  }

  int64_t most_pages() const { return most_pages_; }

 private:
  Stream() = default;

  void Append(kv::Branch* branch, int64_t count) {
    for (int64_t i = 0; i < count; ++i, ++next_) {
      branch->Append({static_cast<int32_t>(next_ * 7919 % model_->plan().vocabulary_size)});
    }
  }

  absl::Status Step(kv::Branch* branch) {
    while (branch->computed() < branch->tokens()) {
      const int64_t at = branch->computed();
      const int64_t rows = branch->step_rows();
      TOKEND_RETURN_IF_ERROR(branch->Prepare(rows));
      tokens_.clear();
      branch->ReadTokens(at, at + rows, &tokens_);
      const ops::StepSequence sequence = {
          .rows = static_cast<int32_t>(rows), .position = at, .layers = branch->layers()};
      for (const ops::LayerKv& layer : sequence.layers) {
        most_pages_ = std::max<int64_t>(most_pages_, layer.page_count);
      }
      const auto last = static_cast<int32_t>(rows - 1);
      TOKEND_RETURN_IF_ERROR(backend_
                                 ->Forward({.tokens = tokens_,
                                            .sequences = absl::MakeConstSpan(&sequence, 1),
                                            .logit_rows = absl::MakeConstSpan(&last, 1)})
                                 .status());
      branch->Advance(rows);
    }
    return absl::OkStatus();
  }

  std::unique_ptr<gguf::File> file_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<cpu::CpuBackend> backend_;
  std::unique_ptr<kv::SessionStore> store_;
  std::vector<int32_t> tokens_;
  int64_t next_ = 0;
  int64_t most_pages_ = 0;
};

}  // namespace

absl::Status RunEndless(const Options& options, Report* report) {
  if (options.model_path.empty()) return absl::InvalidArgumentError("needs --model FILE");
  TOKEND_ASSIGN_OR_RETURN(const auto stream, Stream::Create(options));
  for (int64_t i = 0; i < kWarmUpTurns; ++i) TOKEND_RETURN_IF_ERROR(stream->Turn());
  const int64_t turns = kTokens / kParts / (kInput + kOutput);
  std::vector<double> medians;  // of a turn, by part
  for (int part = 0; part < kParts; ++part) {
    std::vector<double> seconds(static_cast<size_t>(turns));
    for (double& turn : seconds) {
      const auto start = std::chrono::steady_clock::now();
      TOKEND_RETURN_IF_ERROR(stream->Turn());
      turn = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    medians.push_back(Median(std::move(seconds)));
    report->Add(absl::StrCat("turn_median_before_token_", (part + 1) * kTokens / kParts),
                1e3 * medians.back(), "ms");
  }
  const double growth = medians.back() / medians.front();
  report->Add("last_over_first", growth, "x");
  report->Add("most_pages_per_layer", static_cast<double>(stream->most_pages()), "pages");
  if (growth < kMostGrowth) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the last turns take ", growth, " times as long as the first"));
}

}  // namespace tokend::bench
