#include "tests/support/fake_backend.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/ops/attention.h"

namespace tokend::testing {
namespace {

// Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

uint64_t Hash(uint64_t a, uint64_t b) { return Mix(Mix(a) ^ b); }

uint64_t Embed(int32_t token) { return Hash(0x746f6b656e, token); }

uint64_t KvValue(int layer, int64_t position, uint64_t x) { return Hash(Hash(layer, position), x); }

int64_t Distance(const ops::AttentionMask& mask, int64_t p, int64_t q) {
  return (q < mask.SinkEnd() ? mask.SinkPosition(p) : p) - q;
}

absl::Status Failed(absl::string_view what) {
  return base::MakeError(absl::StatusCode::kInternal, what,
                         {.reason = base::ErrorReason::kBackendFailed});
}

// What a row with `x` adds to the score of the page of a row that it sees; in [0,
// 2^20].
int64_t Weight(uint64_t x, uint64_t value, int64_t distance) {
  return static_cast<int64_t>(Hash(Hash(x, 0x7765696768), Hash(value, distance)) >> 44);
}

}  // namespace

bool TestsRunAhead() { return std::getenv("TOKEND_TEST_RUN_AHEAD") != nullptr; }

void FakeLogits(uint64_t x, absl::Span<float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    // 24 bits, so that the float is exact.
    logits[i] = static_cast<float>(Hash(x, i) >> 40) * (16.0f / (1 << 24)) - 8.0f;
  }
}

ops::BackendInfo FakeBackend::info() const {
  ops::BackendInfo info;
  info.device = "fake";
  info.page_bytes = static_cast<int64_t>(options_.page_tokens * sizeof(Row));
  info.draws_tokens = options_.draws_tokens;
  info.steps_in_flight = options_.steps_in_flight;
  return info;
}

absl::Status FakeBackend::AllocateArena(int64_t pages) {
  arena_.assign(pages * options_.page_tokens, Row{});
  return absl::OkStatus();
}

void FakeBackend::Poison(base::PageId page) {
  const int64_t first = static_cast<int64_t>(page) * options_.page_tokens;
  for (int i = 0; i < options_.page_tokens; ++i) arena_[first + i] = Row{};
}

uint64_t FakeBackend::PageChecksum(base::PageId page, int rows) const {
  const int64_t first = static_cast<int64_t>(page) * options_.page_tokens;
  uint64_t sum = 0;
  for (int i = 0; i < rows; ++i) {
    const Row& row = arena_[first + i];
    sum = Hash(Hash(sum, row.value), Hash(row.layer, row.position));
  }
  return sum;
}

void FakeBackend::Problem(std::string what) {
  if (problems_.size() < 20) problems_.push_back(std::move(what));
}

FakeBackend::Row* FakeBackend::FindRow(const ops::LayerKv& layer, int64_t position) {
  const base::PageId page = ops::FindPage(layer, position / options_.page_tokens);
  const int64_t pages = static_cast<int64_t>(arena_.size()) / options_.page_tokens;
  if (static_cast<int64_t>(page) < 0 || static_cast<int64_t>(page) >= pages) return nullptr;
  return &arena_[static_cast<int64_t>(page) * options_.page_tokens +
                 position % options_.page_tokens];
}

uint64_t FakeBackend::Attend(const ops::LayerKv& kv, int layer, int64_t position, uint64_t x) {
  const uint64_t query = x;
  for (int64_t q = ops::NextSeen(kv, position, 0, options_.page_tokens); q <= position;
       q = ops::NextSeen(kv, position, q + 1, options_.page_tokens)) {
    const Row* row = FindRow(kv, q);
    if (row == nullptr) {
      Problem(absl::StrCat("layer ", layer, ", position ", position, " reads ", q,
                           ", which has no page"));
    } else if (row->layer != layer || row->position != q) {
      Problem(absl::StrCat("layer ", layer, ", position ", position, " reads ", q,
                           " in a row that holds layer ", row->layer, ", position ",
                           row->position));
    } else {
      const int64_t distance = Distance(kv.mask, position, q);
      x = Hash(x, Hash(row->value, distance));
      if (kv.scores != nullptr) {
        kv.scores[ops::FindEntry(kv, q / options_.page_tokens)] +=
            Weight(query, row->value, distance);
      }
    }
  }
  return x;
}

void FakeBackend::StoreRow(const ops::LayerKv& kv, int layer, int64_t position, uint64_t x) {
  if (position < kv.store_begin) return;
  Row* row = FindRow(kv, position);
  if (row == nullptr) {
    Problem(absl::StrCat("layer ", layer, ": no page to write position ", position));
  } else {
    *row = {.value = KvValue(layer, position, x), .position = position, .layer = layer};
  }
}

void FakeBackend::RunSequence(const ops::StepSequence& sequence, absl::Span<const int32_t> tokens,
                              std::vector<uint64_t>* x) {
  x->clear();
  for (int32_t token : tokens) x->push_back(Embed(token));
  int64_t first = sequence.position;  // of the rows that have come as far
  for (int layer = 0; layer < options_.layers; ++layer) {
    const ops::LayerKv& kv = sequence.layers[layer];
    const int64_t end = sequence.position + sequence.rows;
    if (first > sequence.position && kv.attend_begin < first) {
      Problem(absl::StrCat("layer ", layer, ": rows come back to life"));
    }
    for (int64_t p = first; p < end; ++p) StoreRow(kv, layer, p, (*x)[p - sequence.position]);
    first = std::max(first, kv.attend_begin);
    for (int64_t p = first; p < end; ++p) {
      uint64_t& value = (*x)[p - sequence.position];
      value = Attend(kv, layer, p, value);
    }
  }
}

absl::Status FakeBackend::CheckBatch(const ops::StepBatch& batch) {
  if (static_cast<int>(batch.tokens.size()) > options_.max_batch_tokens ||
      static_cast<int>(batch.sequences.size()) > options_.max_sequences) {
    Problem("the step is larger than the backend was made for");
  }
  for (int32_t token : batch.tokens) {
    if (token < -static_cast<int64_t>(draws_before_) || token >= options_.vocabulary_size) {
      Problem(absl::StrCat("token ", token));
    }
  }
  int32_t row = 0;
  std::set<base::PageId> written, used;
  for (const ops::StepSequence& sequence : batch.sequences) {
    if (sequence.first_row != row || sequence.rows < 1 || sequence.position < 0 ||
        static_cast<int>(sequence.layers.size()) != options_.layers) {
      return Failed("malformed sequence");
    }
    row += sequence.rows;
    std::set<base::PageId> writes, own;
    const int64_t first = sequence.position / options_.page_tokens;
    const int64_t last = (sequence.position + sequence.rows - 1) / options_.page_tokens;
    for (const ops::LayerKv& layer : sequence.layers) {
      own.insert(layer.pages, layer.pages + layer.page_count);
      const int64_t store_first = std::max(first, layer.store_begin / options_.page_tokens);
      for (int64_t i = store_first; i <= last; ++i) writes.insert(ops::FindPage(layer, i));
    }
    for (base::PageId page : writes) {
      if (used.count(page) > 0) Problem("a page is written that another sequence has");
    }
    for (base::PageId page : own) {
      if (written.count(page) > 0) Problem("a page is read that another sequence writes");
    }
    used.insert(own.begin(), own.end());
    written.insert(writes.begin(), writes.end());
  }
  if (row != static_cast<int32_t>(batch.tokens.size())) return Failed("rows without a sequence");
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const int32_t at = batch.logit_rows[i];
    if (at < 0 || at >= row || (i > 0 && at <= batch.logit_rows[i - 1])) {
      return Failed("malformed logit rows");
    }
  }
  return absl::OkStatus();
}

absl::Status FakeBackend::Submit(const ops::StepBatch& batch) {
  if (static_cast<int>(waiting_.size()) + (output_ ? 1 : 0) >= options_.steps_in_flight) {
    Problem("more steps in flight than there may be");
  }
  if (fail_submit_in > 0 && --fail_submit_in == 0) return Failed("told to fail");
  if (absl::Status status = CheckBatch(batch); !status.ok()) {
    Problem(std::string(status.message()));
  }
  draws_before_ = batch.draws.size();
  if (!problems_.empty()) return Failed(problems_.front());
  if (options_.steps_in_flight > 1) {
    if (!waiting_.empty()) ++steps_ahead_;
    waiting_.emplace_back(batch);
    return absl::OkStatus();
  }
  auto output = Run(batch);
  if (!output.ok()) return output.status();
  output_ = *output;
  return absl::OkStatus();
}

absl::StatusOr<ops::StepOutput> FakeBackend::Collect() {
  if (output_.has_value()) return *std::exchange(output_, std::nullopt);
  if (waiting_.empty()) return Failed("no step is in flight");
  auto output = Run(waiting_.front().step.batch());
  if (absl::Status copied = Copy(waiting_.front().copies); output.ok() && !copied.ok()) {
    output = copied;
  }
  waiting_.pop_front();
  return output;
}

// Looks up the tokens that the step before drew.
absl::StatusOr<ops::StepOutput> FakeBackend::Run(ops::StepBatch batch) {
  std::vector<int32_t> tokens(batch.tokens.begin(), batch.tokens.end());
  for (int32_t& token : tokens) {
    if (token >= 0) continue;
    const auto draw = static_cast<size_t>(-1 - token);
    if (draw >= tokens_.size()) return Failed("a token that no step before drew");
    token = std::max(0, tokens_[draw]);
  }
  batch.tokens = tokens;
  if (on_forward) {
    if (absl::Status status = on_forward(batch); !status.ok()) return status;
  }
  if (fail_forward_in > 0 && --fail_forward_in == 0) return Failed("told to fail");
  ++steps_;
  rows_ += static_cast<int64_t>(batch.tokens.size());
  const int vocabulary = options_.vocabulary_size;
  logits_.resize(batch.logit_rows.size() * vocabulary);
  std::vector<uint64_t> x;
  size_t next = 0;
  for (const ops::StepSequence& sequence : batch.sequences) {
    RunSequence(sequence, batch.tokens.subspan(sequence.first_row, sequence.rows), &x);
    for (; next < batch.logit_rows.size() &&
           batch.logit_rows[next] < sequence.first_row + sequence.rows;
         ++next) {
      const int32_t i = batch.logit_rows[next] - sequence.first_row;
      if (sequence.position + i < sequence.layers.back().attend_begin) {
        Problem("logits of a row that ended in a lower layer");
      }
      const absl::Span<float> logits =
          absl::MakeSpan(logits_).subspan(next * vocabulary, vocabulary);
      FakeLogits(x[i], logits);
      if (on_logits) on_logits(sequence.position + i, x[i], logits);
    }
  }
  if (!problems_.empty()) return Failed(problems_.front());
  ops::StepOutput output;
  output.saturated_activations = saturated_activations;
  if (batch.draws.empty()) {
    output.logits = logits_;
  } else {
    DrawTokens(batch.draws);
    output.tokens = tokens_;
  }
  return output;
}

void FakeBackend::DrawTokens(absl::Span<const ops::TokenDraw> draws) {
  tokens_.clear();
  const auto width = static_cast<size_t>(options_.vocabulary_size);
  for (size_t i = 0; i < draws.size(); ++i) {
    const auto row = absl::MakeConstSpan(logits_).subspan(i * width, width);
    const auto token = sampler_.Sample(row, *draws[i].params,
                                       sampling::PenaltyState(*draws[i].params), draws[i].position);
    const auto bad =
        std::find_if(row.begin(), row.end(), [](float l) { return !std::isfinite(l); });
    tokens_.push_back(token.ok() ? *token : -1 - static_cast<int32_t>(bad - row.begin()));
  }
}

absl::Status FakeBackend::CopyPages(absl::Span<const ops::PageCopy> copies) {
  if (fail_copy_in > 0 && --fail_copy_in == 0) return Failed("told to fail");
  if (waiting_.empty()) return Copy(copies);
  std::vector<ops::PageCopy>& later = waiting_.back().copies;
  later.insert(later.end(), copies.begin(), copies.end());
  return absl::OkStatus();
}

absl::Status FakeBackend::Copy(absl::Span<const ops::PageCopy> copies) {
  for (const ops::PageCopy& copy : copies) {
    const int64_t from = static_cast<int64_t>(copy.from) * options_.page_tokens;
    const int64_t to = static_cast<int64_t>(copy.to) * options_.page_tokens;
    for (int i = 0; i < copy.rows; ++i) {
      if (arena_[from + i].layer < 0) Problem("a row is copied that was freed or never written");
      arena_[to + i] = arena_[from + i];
    }
    ++copied_pages_;
  }
  return problems_.empty() ? absl::OkStatus() : Failed(problems_.front());
}

FakeReference::FakeReference(int vocabulary_size, std::vector<ops::AttentionMask> masks,
                             const FakeHeavyRule& rule)
    : vocabulary_size_(vocabulary_size),
      masks_(std::move(masks)),
      rule_(rule),
      scores_(masks_.size()),
      kv_(masks_.size()) {}

bool FakeReference::Sees(size_t layer, int64_t p, int64_t q) const {
  if (rule_.epoch_tokens == 0) return masks_[layer].Sees(p, q);
  const int64_t epoch = p / rule_.epoch_tokens * rule_.epoch_tokens;
  if (q < rule_.sink_tokens || q >= epoch - rule_.window_tokens) return true;
  const int64_t page = q / rule_.page_tokens;
  return page * rule_.page_tokens >= rule_.sink_tokens &&
         (page + 1) * rule_.page_tokens <= epoch - rule_.window_tokens &&
         scores_[layer].count(page) > 0;
}

void FakeReference::StartEpoch(int64_t epoch) {
  for (std::map<int64_t, int64_t>& scores : scores_) {
    std::map<int64_t, int64_t> left;
    for (const auto& [page, score] : scores) {
      const bool old = page * rule_.page_tokens >= rule_.sink_tokens &&
                       (page + 1) * rule_.page_tokens <= epoch - rule_.window_tokens;
      int better = 0;
      for (const auto& [other, its_score] : scores) {
        const bool rival = other * rule_.page_tokens >= rule_.sink_tokens &&
                           (other + 1) * rule_.page_tokens <= epoch - rule_.window_tokens;
        better += rival && (its_score > score || (its_score == score && other < page));
      }
      if (!old || better < rule_.kept_pages) left[page] = score / 2;
    }
    scores = left;
  }
}

void FakeReference::Append(absl::Span<const int32_t> tokens) {
  for (int32_t token : tokens) {
    const int64_t p = size();
    if (rule_.epoch_tokens > 0 && p % rule_.epoch_tokens == 0) StartEpoch(p);
    uint64_t x = Embed(token);
    for (size_t layer = 0; layer < masks_.size(); ++layer) {
      const ops::AttentionMask& mask = masks_[layer];
      kv_[layer].push_back(KvValue(static_cast<int>(layer), p, x));
      if (rule_.epoch_tokens > 0) scores_[layer].try_emplace(p / rule_.page_tokens, 0);
      const uint64_t query = x;
      for (int64_t q = 0; q <= p; ++q) {
        if (!Sees(layer, p, q)) continue;
        x = Hash(x, Hash(kv_[layer][q], Distance(mask, p, q)));
        if (rule_.epoch_tokens == 0) continue;
        scores_[layer][q / rule_.page_tokens] += Weight(query, kv_[layer][q], p - q);
      }
    }
    outputs_.push_back(x);
  }
}

std::vector<float> FakeReference::Logits(int64_t position) const {
  std::vector<float> logits(vocabulary_size_);
  FakeLogits(outputs_[position], absl::MakeSpan(logits));
  return logits;
}

}  // namespace tokend::testing
