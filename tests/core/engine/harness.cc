#include "tests/core/engine/harness.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "gtest/gtest.h"
#include "tests/core/kv/store_audit.h"
#include "tests/support/gguf_writer.h"

namespace tokend::testing {
namespace {

// Tests that watch memory take many more steps.
constexpr size_t kMostReports = 10000;

struct TinyModel {
  std::string bytes;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<tokenizer::ChatTemplate> chat;
};

const TinyModel& Tiny() {
  static const TinyModel* const model = [] {
    auto* made = new TinyModel;
    GgufWriter writer;
    writer.String("general.architecture", "llama");
    AddTinyVocabulary(writer);
    made->bytes = writer.Build();
    const auto file = gguf::File::Parse(absl::MakeConstSpan(
        reinterpret_cast<const std::byte*>(made->bytes.data()), made->bytes.size()));
    TOKEND_CHECK(file.ok());
    made->tokenizer = tokenizer::Tokenizer::Create(**file).value();
    made->chat = tokenizer::ChatTemplate::Create(**file, made->tokenizer.get()).value();
    return made;
  }();
  return *model;
}

}  // namespace

const tokenizer::Tokenizer& TinyTokenizer() { return *Tiny().tokenizer; }
const tokenizer::ChatTemplate& TinyChat() { return *Tiny().chat; }

std::vector<int32_t> ByteTokens(absl::string_view text) {
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(kFirstByte + static_cast<unsigned char>(c));
  return tokens;
}

void RecordingSink::OnStarted(const engine::Started& started) {
  base::MutexLock lock(&mu_);
  EXPECT_FALSE(started_.has_value());
  EXPECT_TRUE(deltas_.empty());
  EXPECT_FALSE(finished_.has_value() || failed_.has_value());
  started_ = started;
}

void RecordingSink::OnDelta(engine::Delta delta) {
  base::MutexLock lock(&mu_);
  EXPECT_TRUE(started_.has_value());
  EXPECT_FALSE(finished_.has_value() || failed_.has_value());
  EXPECT_FALSE(delta.token_ids.empty());
  const int32_t next = deltas_.empty() ? 0
                                       : deltas_.back().index +
                                             static_cast<int32_t>(deltas_.back().token_ids.size());
  EXPECT_EQ(delta.index, next);
  if (delta.text_is_exact) {
    EXPECT_EQ(delta.text, delta.raw);
  }
  EXPECT_TRUE(delta.logprobs.empty() || delta.logprobs.size() == delta.token_ids.size());
  deltas_.push_back(std::move(delta));
}

void RecordingSink::OnFinished(const engine::Finished& finished) {
  base::MutexLock lock(&mu_);
  EXPECT_FALSE(finished_.has_value() || failed_.has_value());
  const engine::Timings& t = finished.timings;
  EXPECT_EQ(t.queue + t.prefill + t.decode + t.parked, t.total);
  finished_ = finished;
}

void RecordingSink::OnFailed(const absl::Status& status) {
  base::MutexLock lock(&mu_);
  EXPECT_FALSE(finished_.has_value() || failed_.has_value());
  EXPECT_FALSE(status.ok());
  failed_ = status;
}

bool RecordingSink::Writable() {
  base::MutexLock lock(&mu_);
  return writable_;
}

absl::Duration RecordingSink::BlockedSince() {
  base::MutexLock lock(&mu_);
  return blocked_since_;
}

int32_t RecordingSink::TakenTokens() {
  base::MutexLock lock(&mu_);
  if (taken_.has_value()) return *taken_;
  int32_t sent = 0;
  for (const engine::Delta& delta : deltas_) sent += static_cast<int32_t>(delta.token_ids.size());
  return sent;
}

void RecordingSink::SetWritable(bool writable) {
  base::MutexLock lock(&mu_);
  writable_ = writable;
}

void RecordingSink::SetBlockedSince(absl::Duration since) {
  base::MutexLock lock(&mu_);
  blocked_since_ = since;
}

void RecordingSink::SetTaken(int32_t tokens) {
  base::MutexLock lock(&mu_);
  taken_ = tokens;
}

bool RecordingSink::ended() const {
  base::MutexLock lock(&mu_);
  return finished_.has_value() || failed_.has_value();
}

std::optional<engine::Started> RecordingSink::started() const {
  base::MutexLock lock(&mu_);
  return started_;
}

std::optional<engine::Finished> RecordingSink::finished() const {
  base::MutexLock lock(&mu_);
  return finished_;
}

std::optional<absl::Status> RecordingSink::failed() const {
  base::MutexLock lock(&mu_);
  return failed_;
}

std::vector<engine::Delta> RecordingSink::deltas() const {
  base::MutexLock lock(&mu_);
  return deltas_;
}

std::string RecordingSink::text() const {
  std::string all;
  for (const engine::Delta& delta : deltas()) all += delta.text;
  return all;
}

std::string RecordingSink::raw() const {
  std::string all;
  for (const engine::Delta& delta : deltas()) all += delta.raw;
  return all;
}

std::vector<int32_t> RecordingSink::tokens() const {
  std::vector<int32_t> all;
  for (const engine::Delta& delta : deltas()) {
    all.insert(all.end(), delta.token_ids.begin(), delta.token_ids.end());
  }
  return all;
}

std::vector<engine::TokenLogprob> RecordingSink::logprobs() const {
  std::vector<engine::TokenLogprob> all;
  for (const engine::Delta& delta : deltas()) {
    all.insert(all.end(), delta.logprobs.begin(), delta.logprobs.end());
  }
  return all;
}

void CountingObserver::OnStep(const base::StepReport& report) {
  base::MutexLock lock(&mu_);
  EXPECT_EQ(report.prefill + report.decode, report.duration);
  if (counts_.steps.size() < kMostReports) counts_.steps.push_back(report);
}

void CountingObserver::OnPrompt(int64_t computed_tokens, int64_t cached_tokens) {
  base::MutexLock lock(&mu_);
  ++counts_.prompts;
  counts_.computed += computed_tokens;
  counts_.cached += cached_tokens;
}

void CountingObserver::OnGeneratedTokens(int64_t tokens) {
  base::MutexLock lock(&mu_);
  counts_.generated += tokens;
}

void CountingObserver::OnFirstToken(absl::Duration) {
  base::MutexLock lock(&mu_);
  ++counts_.first_tokens;
}

void CountingObserver::OnInterToken(absl::Duration) {
  base::MutexLock lock(&mu_);
  ++counts_.inter_tokens;
}

void CountingObserver::OnQueue(absl::Duration) {
  base::MutexLock lock(&mu_);
  ++counts_.queues;
}

void CountingObserver::OnRequestEnd(absl::string_view reason, absl::Duration) {
  base::MutexLock lock(&mu_);
  ++counts_.ends[std::string(reason)];
}

CountingObserver::Counts CountingObserver::counts() const {
  base::MutexLock lock(&mu_);
  return counts_;
}

Harness::Harness(const HarnessOptions& options)
    : backend_(options.backend),
      real_backend_(options.real_backend),
      tags_(
          real_backend_ != nullptr ? real_backend_.get() : &backend_, options.backend.page_tokens,
          real_backend_ != nullptr ? options.on_page_freed
                                   : [this](base::PageId page) { backend_.Poison(page); }) {
  TOKEND_CHECK(tags_.AllocateArena(options.pages).ok());
  kv::StoreOptions store;
  store.layers = options.backend.layers;
  store.page_tokens = options.backend.page_tokens;
  store.pages = options.pages;
  store.page_bytes = tags_.info().page_bytes;
  store.context_tokens = options.engine.context_tokens;
  store.model_fingerprint = "fake";
  store.share_prefixes = options.share_prefixes;
  store.max_versions = options.max_versions;
  store.look_back_tokens = options.look_back_tokens;
  store.local_windows = options.local_windows;
  store.quota_pages = options.quota_pages;
  store.hooks = &tags_;
  store_ = kv::SessionStore::Create(store, &tags_, &clock_, &observer_).value();
  engine::EngineOptions engine = options.engine;
  engine.page_tokens = options.backend.page_tokens;
  scheduler_ = std::make_unique<engine::Scheduler>(engine, parts());
  backend_.on_forward = [this](const ops::StepBatch& batch) {
    clock_.Advance(fixed_ + per_row_ * static_cast<int64_t>(batch.tokens.size()));
    return absl::OkStatus();
  };
  backend_.on_logits = [this](int64_t position, uint64_t, absl::Span<float> logits) {
    const auto found = script_.find(position + 1);
    if (found != script_.end()) logits[found->second] = 100;
  };
}

Harness::~Harness() {
  scheduler_.reset();
  store_->Maintain();
  for (const std::string& problem : backend_.problems()) ADD_FAILURE() << problem;
  for (const std::string& problem : tags_.problems()) ADD_FAILURE() << problem;
  for (const std::string& broken : kv::StoreAudit(store_.get()).Check()) ADD_FAILURE() << broken;
  const kv::PageCounts pages = store_->Snapshot().pages;
  EXPECT_EQ(pages.free + pages.cached + pages.private_pages + pages.shared + pages.pinned +
                pages.quarantined,
            pages.total);
  EXPECT_EQ(pages.quarantined, 0);
}

engine::Engine::Parts Harness::parts() {
  return {&tags_, store_.get(), &TinyTokenizer(), &TinyChat(), &clock_, &observer_};
}

std::shared_ptr<RecordingSink> Harness::Submit(engine::Request request) {
  auto sink = std::make_shared<RecordingSink>();
  const absl::Status status = scheduler_->Submit(std::move(request), sink);
  EXPECT_TRUE(status.ok()) << status;
  return sink;
}

absl::Status Harness::TrySubmit(engine::Request request) {
  return scheduler_->Submit(std::move(request), std::make_shared<RecordingSink>());
}

int Harness::RunUntilIdle(int most) {
  int steps = 0;
  while (steps < most) {
    const auto ran = scheduler_->StepOnce();
    if (!ran.ok() || !*ran) break;
    ++steps;
  }
  return steps;
}

void Harness::Step(int count) {
  for (int i = 0; i < count; ++i) (void)scheduler_->StepOnce();
}

std::shared_ptr<RecordingSink> Harness::Run(engine::Request request) {
  auto sink = Submit(std::move(request));
  RunUntilIdle();
  EXPECT_TRUE(sink->ended());
  return sink;
}

void Harness::SetStepTime(absl::Duration fixed, absl::Duration per_row) {
  fixed_ = fixed;
  per_row_ = per_row;
}

void Harness::Say(int64_t first, absl::string_view text, std::optional<int32_t> last) {
  for (const int32_t token : ByteTokens(text)) script_[first++] = token;
  if (last.has_value()) script_[first] = *last;
}

std::vector<int32_t> Harness::ReadSession(absl::string_view id) {
  const auto slice = store_->ReadTokens("p", id, std::nullopt, std::nullopt, 65536);
  EXPECT_TRUE(slice.ok()) << slice.status();
  return slice.ok() ? slice->tokens : std::vector<int32_t>{};
}

void Harness::Delete(absl::string_view id) {
  EXPECT_TRUE(store_->DeleteSession("p", id, std::nullopt, false).ok());
}

namespace {

engine::Request BaseRequest(int32_t max) {
  static std::atomic<int> serial = 0;
  engine::Request request;
  request.principal = std::string(1, 'p');
  request.id = absl::StrCat("request-", ++serial);
  request.sampling.temperature = 0;
  request.stop.max_output_tokens = max;
  request.stop.ignore_end_of_text = true;
  return request;
}

}  // namespace

engine::Request TokensRequest(std::vector<int32_t> tokens, int32_t max) {
  engine::Request request = BaseRequest(max);
  request.input = engine::TokenInput{std::move(tokens)};
  return request;
}

engine::Request TextRequest(absl::string_view text, int32_t max) {
  engine::Request request = BaseRequest(max);
  request.input = engine::TextInput{std::string(text), std::nullopt, false};
  return request;
}

engine::Request ChatRequest(std::vector<engine::ChatInput::Message> messages, int32_t max) {
  engine::Request request = BaseRequest(max);
  request.input = engine::ChatInput{std::move(messages), false};
  request.stop.ignore_end_of_text = false;
  return request;
}

engine::SessionTarget OnSession(absl::string_view id) {
  engine::SessionTarget target;
  target.id = std::string(id);
  target.allow_missing = true;
  return target;
}

}  // namespace tokend::testing
