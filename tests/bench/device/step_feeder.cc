#include "tests/bench/device/step_feeder.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "core/base/status_macros.h"

namespace tokend::bench {
namespace {

int64_t PagesOf(int64_t tokens, int page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

}  // namespace

int64_t StepFeeder::Pages(const ops::ModelPlan& plan, const Options& options) {
  return options.sequences * static_cast<int64_t>(plan.layers.size()) *
         PagesOf(options.tokens, options.page_tokens);
}

StepFeeder::StepFeeder(ops::Backend* backend, const ops::ModelPlan& plan, const Options& options)
    : backend_(backend),
      plan_(plan),
      options_(options),
      draws_tokens_(backend->info().draws_tokens) {
  pages_.resize(static_cast<size_t>(Pages(plan, options)));
  for (size_t page = 0; page < pages_.size(); ++page) {
    pages_[page] = static_cast<base::PageId>(page);
  }
  std::shuffle(pages_.begin(), pages_.end(), std::mt19937_64(1));
  positions_.resize(static_cast<size_t>(options.sequences));
  kv_.resize(positions_.size());
  const base::PageId* next = pages_.data();
  for (std::vector<ops::LayerKv>& layers : kv_) {
    for (const ops::LayerPlan& layer : plan.layers) {
      ops::LayerKv kv;
      kv.pages = next;
      kv.mask.window_tokens = layer.local_tokens;
      layers.push_back(kv);
      next += PagesOf(options.tokens, options.page_tokens);
    }
  }
}

void StepFeeder::AddSequence(int sequence, int rows) {
  const auto at = static_cast<size_t>(sequence);
  const int64_t end = positions_[at] + rows;
  for (ops::LayerKv& kv : kv_[at]) {
    kv.page_count = static_cast<int32_t>(PagesOf(end, options_.page_tokens));
  }
  const auto first = static_cast<int32_t>(tokens_.size());
  sequences_.push_back({first, rows, positions_[at], kv_[at]});
  logit_rows_.push_back(first + rows - 1);
  for (int row = 0; row < rows; ++row) {
    // Spread over the vocabulary: the embedding's rows are not all in a cache.
    tokens_.push_back(
        static_cast<int32_t>(next_token_ % static_cast<uint64_t>(plan_.vocabulary_size)));
    next_token_ += 7919;
  }
  positions_[at] = end;
}

absl::Status StepFeeder::Step(int sequences, int rows) {
  tokens_.clear();
  logit_rows_.clear();
  sequences_.clear();
  for (int sequence = 0; sequence < sequences; ++sequence) AddSequence(sequence, rows);
  return Run();
}

absl::Status StepFeeder::Run() {
  draws_.clear();
  if (draws_tokens_) {
    for (const ops::StepSequence& sequence : sequences_) {
      draws_.push_back({&sampling_, sequence.position + sequence.rows});
    }
  }
  return backend_->Forward({tokens_, sequences_, logit_rows_, draws_}).status();
}

absl::Status StepFeeder::Fill(int sequences, int64_t position, int chunk) {
  for (int sequence = 0; sequence < sequences; ++sequence) {
    int64_t& at = positions_[static_cast<size_t>(sequence)];
    while (at < position) {
      tokens_.clear();
      logit_rows_.clear();
      sequences_.clear();
      AddSequence(sequence, static_cast<int>(std::min<int64_t>(chunk, position - at)));
      TOKEND_RETURN_IF_ERROR(Run());
    }
  }
  return absl::OkStatus();
}

void StepFeeder::Rewind(int64_t position) {
  std::fill(positions_.begin(), positions_.end(), position);
}

}  // namespace tokend::bench
