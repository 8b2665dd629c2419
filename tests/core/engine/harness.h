// An engine over the fake backend, the real store and a tiny real tokeniser,
// driven step by step.
#ifndef TOKEND_TESTS_CORE_ENGINE_HARNESS_H_
#define TOKEND_TESTS_CORE_ENGINE_HARNESS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/observer.h"
#include "core/engine/engine.h"
#include "core/engine/scheduler.h"
#include "core/kv/session_store.h"
#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/support/fake_backend.h"
#include "tests/support/shadow_tags.h"

namespace tokend::testing {

// The tokeniser of tests/support/gguf_writer.h's tiny vocabulary. Token kFirstByte
// + b is byte b.
const tokenizer::Tokenizer& TinyTokenizer();
const tokenizer::ChatTemplate& TinyChat();
inline constexpr int32_t kBos = 0;
inline constexpr int32_t kEos = 1;
inline constexpr int32_t kImStart = 2;
inline constexpr int32_t kImEnd = 3;
inline constexpr int32_t kFirstByte = 4;
inline constexpr int kVocabulary = 265;
// One token a byte.
std::vector<int32_t> ByteTokens(absl::string_view text);

// Keeps a turn's events and checks their order. Thread-safe.
class RecordingSink : public engine::TurnSink {
 public:
  void OnStarted(const engine::Started& started) override;
  void OnDelta(engine::Delta delta) override;
  void OnFinished(const engine::Finished& finished) override;
  void OnFailed(const absl::Status& status) override;
  bool Writable() override;
  absl::Duration BlockedSince() override;
  int32_t TakenTokens() override;

  // What the transport does. Taken: absent, whatever was sent.
  void SetWritable(bool writable);
  void SetBlockedSince(absl::Duration since);
  void SetTaken(int32_t tokens);

  bool ended() const;
  std::optional<engine::Started> started() const;
  std::optional<engine::Finished> finished() const;
  std::optional<absl::Status> failed() const;
  // Of all deltas.
  std::string text() const;
  std::string raw() const;
  std::vector<int32_t> tokens() const;
  std::vector<engine::TokenLogprob> logprobs() const;
  std::vector<engine::Delta> deltas() const;

 private:
  mutable base::Mutex mu_;
  std::optional<engine::Started> started_ ABSL_GUARDED_BY(mu_);
  std::vector<engine::Delta> deltas_ ABSL_GUARDED_BY(mu_);
  std::optional<engine::Finished> finished_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> failed_ ABSL_GUARDED_BY(mu_);
  bool writable_ ABSL_GUARDED_BY(mu_) = true;
  absl::Duration blocked_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteDuration();
  std::optional<int32_t> taken_ ABSL_GUARDED_BY(mu_);
};

class CountingObserver : public base::Observer {
 public:
  void OnStep(const base::StepReport& report) override;
  void OnPrompt(int64_t computed_tokens, int64_t cached_tokens) override;
  void OnGeneratedTokens(int64_t tokens) override;
  void OnFirstToken(absl::Duration) override;
  void OnInterToken(absl::Duration) override;
  void OnQueue(absl::Duration) override;
  void OnRequestEnd(absl::string_view reason, absl::Duration) override;
  void OnSessionOp(base::SessionOp) override {}
  void OnVersionConflict() override {}
  void OnPageCopies(int64_t) override {}
  void OnEvictedPages(base::EvictionCause cause, int64_t pages) override {
    if (on_evicted) on_evicted(cause, pages);
  }
  void OnPrefixQuery(int64_t, int64_t) override {}
  void OnRecomputedTokens(int64_t) override {}

  struct Counts {
    std::map<std::string, int> ends;
    std::vector<base::StepReport> steps;  // the first 10,000
    int64_t prompts = 0;
    int64_t computed = 0;
    int64_t cached = 0;
    int64_t generated = 0;
    int64_t first_tokens = 0;
    int64_t inter_tokens = 0;
    int64_t queues = 0;
  };
  Counts counts() const;

  // Told of evictions, with the store's mutex held.
  std::function<void(base::EvictionCause, int64_t)> on_evicted;

 private:
  mutable base::Mutex mu_;
  Counts counts_ ABSL_GUARDED_BY(mu_);
};

struct HarnessOptions {
  engine::EngineOptions engine = {.context_tokens = 1024, .vocabulary_size = kVocabulary};
  int64_t pages = 3 * 512;
  FakeBackendOptions backend = {.vocabulary_size = kVocabulary};
  bool share_prefixes = false;
  int max_versions = 16;
  int64_t look_back_tokens = kv::StoreOptions().look_back_tokens;
  std::map<std::string, int64_t> quota_pages;
  std::vector<int64_t> local_windows;
  // In place of the fake one, with its arena; `backend` must describe it.
  std::shared_ptr<ops::Backend> real_backend;
  std::function<void(base::PageId)> on_page_freed;  // of the real one
};

class Harness {
 public:
  explicit Harness(const HarnessOptions& options = {});
  // Checks that nothing is left over: pages, reads, writes.
  ~Harness();

  engine::Scheduler& scheduler() { return *scheduler_; }
  kv::SessionStore& store() { return *store_; }
  FakeBackend& backend() { return backend_; }  // unused beside a real one
  ShadowTags& tags() { return tags_; }
  base::ManualClock& clock() { return clock_; }
  CountingObserver& observer() { return observer_; }
  CountingObserver::Counts counts() const { return observer_.counts(); }
  engine::Engine::Parts parts();

  // Expects success.
  std::shared_ptr<RecordingSink> Submit(engine::Request request);
  absl::Status TrySubmit(engine::Request request);
  // Steps until nothing runs any more; at most `most` steps. How many it took.
  int RunUntilIdle(int most = 100000);
  // So many steps.
  void Step(int count = 1);
  // Submits, runs until idle, and returns the sink.
  std::shared_ptr<RecordingSink> Run(engine::Request request);
  // Each step takes so long.
  void SetStepTime(absl::Duration fixed, absl::Duration per_row);
  // The greedy choice at each position: `script[p]` where there is one, else what
  // the fake model says.
  void SetScript(std::map<int64_t, int32_t> script) { script_ = std::move(script); }
  // From position `first` on the model says `text`, a token a byte, then `last`.
  void Say(int64_t first, absl::string_view text, std::optional<int32_t> last = std::nullopt);

  std::vector<int32_t> ReadSession(absl::string_view id);
  void Delete(absl::string_view id);

 private:
  base::ManualClock clock_;
  CountingObserver observer_;
  FakeBackend backend_;
  const std::shared_ptr<ops::Backend> real_backend_;
  ShadowTags tags_;
  std::unique_ptr<kv::SessionStore> store_;
  std::unique_ptr<engine::Scheduler> scheduler_;
  absl::Duration fixed_;
  absl::Duration per_row_;
  std::map<int64_t, int32_t> script_;
};

// Greedy, no end-of-text, `max` tokens of output; principal "p" and a fresh id.
engine::Request TokensRequest(std::vector<int32_t> tokens, int32_t max);
engine::Request TextRequest(absl::string_view text, int32_t max);
engine::Request ChatRequest(std::vector<engine::ChatInput::Message> messages, int32_t max);
engine::SessionTarget OnSession(absl::string_view id);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_CORE_ENGINE_HARNESS_H_
