#ifndef TOKEND_TESTS_SUPPORT_FAKE_BACKEND_H_
#define TOKEND_TESTS_SUPPORT_FAKE_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/page_id.h"
#include "core/ops/backend.h"
#include "core/sampling/sampler.h"
#include "tests/support/batch_copy.h"

namespace tokend::testing {

bool TestsRunAhead();

struct FakeBackendOptions {
  int layers = 3;
  int page_tokens = 16;
  int vocabulary_size = 64;
  int max_batch_tokens = 2048;
  int max_sequences = 32;
  // Both: as $TOKEND_TEST_RUN_AHEAD says, with which whole suites run ahead.
  bool draws_tokens = TestsRunAhead();
  // With more than one a step runs when it is collected, as late as a device may.
  int steps_in_flight = TestsRunAhead() ? 2 : 1;
};

// A backend without a model. With x[0][p] = H(token p), layer l keeps
//   kv[l][p] = H(l, p, x[l][p])
// in its pages and gives
//   x[l + 1][p] = H(x[l][p], kv[l][q] at its distance, for every q that p sees),
// so a stale, missing, foreign or overwritten row anywhere shows in all later
// values. Logits derive from the last x.
//
// Each row carries its layer and position; reading a row that was freed, never
// written, or written for another place fails the step and is remembered in
// problems(). So does a page that two sequences of a step write, or that one
// writes and another reads.
class FakeBackend : public ops::Backend {
 public:
  explicit FakeBackend(const FakeBackendOptions& options) : options_(options) {}

  ops::BackendInfo info() const override;
  absl::Status AllocateArena(int64_t pages) override;
  absl::Status Submit(const ops::StepBatch& batch) override;
  absl::StatusOr<ops::StepOutput> Collect() override;
  absl::Status CopyPages(absl::Span<const ops::PageCopy> copies) override;

  // For kv::StoreHooks::OnFreed.
  void Poison(base::PageId page);

  uint64_t RowValue(base::PageId page, int row) const {
    return arena_[static_cast<int64_t>(page) * options_.page_tokens + row].value;
  }
  // The page's first `rows` rows, as one number.
  uint64_t PageChecksum(base::PageId page, int rows) const;

  const FakeBackendOptions& options() const { return options_; }
  // Empty, or what reads and writes went wrong.
  const std::vector<std::string>& problems() const { return problems_; }
  int64_t steps() const { return steps_; }
  // Submitted before the step before was collected.
  int64_t steps_ahead() const { return steps_ahead_; }
  int64_t rows() const { return rows_; }
  int64_t copied_pages() const { return copied_pages_; }

  // Called before each step runs; an error fails it.
  std::function<absl::Status(const ops::StepBatch&)> on_forward;
  // May change the logits of a row, given its position and x[layers].
  std::function<void(int64_t position, uint64_t x, absl::Span<float> logits)> on_logits;
  // The so many-th call from now fails, or step that runs (fail_forward_in); 0: none.
  int fail_copy_in = 0;
  int fail_submit_in = 0;
  int fail_forward_in = 0;
  // What each step reports.
  int64_t saturated_activations = 0;

 private:
  struct Row {
    uint64_t value = 0;
    int64_t position = -1;
    int layer = -1;  // -1: freed or never written
  };

  // A step that was submitted, and the copies that came before the next one.
  struct Waiting {
    explicit Waiting(const ops::StepBatch& batch) : step(batch) {}
    BatchCopy step;
    std::vector<ops::PageCopy> copies;
  };

  absl::Status CheckBatch(const ops::StepBatch& batch);
  absl::StatusOr<ops::StepOutput> Run(ops::StepBatch batch);
  absl::Status Copy(absl::Span<const ops::PageCopy> copies);
  void RunSequence(const ops::StepSequence& sequence, absl::Span<const int32_t> tokens,
                   std::vector<uint64_t>* x);
  void StoreRow(const ops::LayerKv& kv, int layer, int64_t position, uint64_t x);
  Row* FindRow(const ops::LayerKv& layer, int64_t position);
  uint64_t Attend(const ops::LayerKv& kv, int layer, int64_t position, uint64_t x);
  void Problem(std::string what);

  const FakeBackendOptions options_;
  std::vector<Row> arena_;  // [pages, page_tokens]
  void DrawTokens(absl::Span<const ops::TokenDraw> draws);

  std::vector<float> logits_;
  std::vector<int32_t> tokens_;  // drawn by the step that ran last
  std::deque<Waiting> waiting_;
  std::optional<ops::StepOutput> output_;  // of the one step in flight that ran at once
  size_t draws_before_ = 0;                // of the step that was submitted last
  sampling::Sampler sampler_;
  std::vector<std::string> problems_;
  int64_t steps_ = 0;
  int64_t steps_ahead_ = 0;
  int64_t rows_ = 0;
  int64_t copied_pages_ = 0;
};

// HEAVY_HITTERS, for FakeReference: see kv/heavy_hitters.h.
struct FakeHeavyRule {
  int64_t sink_tokens = 0;
  int64_t window_tokens = 0;
  int kept_pages = 0;
  int64_t epoch_tokens = 0;  // 0: none
  int page_tokens = 0;
};

// What FakeBackend must compute, from tokens and masks alone: no pages.
class FakeReference {
 public:
  // One mask a layer; with a rule, what it keeps instead.
  FakeReference(int vocabulary_size, std::vector<ops::AttentionMask> masks,
                const FakeHeavyRule& rule = {});

  void Append(absl::Span<const int32_t> tokens);
  int64_t size() const { return static_cast<int64_t>(outputs_.size()); }
  // kv[layer][position]
  uint64_t Kv(int layer, int64_t position) const { return kv_[layer][position]; }
  // x[layers][position]
  uint64_t Output(int64_t position) const { return outputs_[position]; }
  std::vector<float> Logits(int64_t position) const;
  // Of the pages that the layer has, by index, at the end.
  const std::map<int64_t, int64_t>& Scores(int layer) const { return scores_[layer]; }

 private:
  bool Sees(size_t layer, int64_t p, int64_t q) const;
  void StartEpoch(int64_t epoch);

  const int vocabulary_size_;
  const std::vector<ops::AttentionMask> masks_;
  const FakeHeavyRule rule_;
  std::vector<std::map<int64_t, int64_t>> scores_;  // [layers] by page
  std::vector<std::vector<uint64_t>> kv_;           // [layers, size()]
  std::vector<uint64_t> outputs_;                   // [size()]
};

// Logits of FakeBackend for a row whose last value is `x`; in [-8, 8).
void FakeLogits(uint64_t x, absl::Span<float> logits);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_FAKE_BACKEND_H_
