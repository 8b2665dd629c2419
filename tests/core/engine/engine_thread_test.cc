// The engine with its thread, called from many.
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/error.h"
#include "core/engine/engine.h"
#include "gtest/gtest.h"
#include "tests/core/engine/harness.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT
using base::ErrorReason;

// A whole engine on the machine's clock.
class ThreadedHarness {
 public:
  explicit ThreadedHarness(EngineOptions options = {.context_tokens = 1024,
                                                    .vocabulary_size = kVocabulary})
      : backend_({.vocabulary_size = kVocabulary}) {
    constexpr int64_t kPages = 3 * 512;
    EXPECT_TRUE(backend_.AllocateArena(kPages).ok());
    kv::StoreOptions store;
    store.layers = 3;
    store.pages = kPages;
    store.page_bytes = 1;
    store.context_tokens = 1024;
    store.model_fingerprint = "fake";
    store_ = kv::SessionStore::Create(store, &backend_, base::RealClock(), &observer_).value();
    engine_ = Engine::Create(options, {&backend_, store_.get(), &TinyTokenizer(), &TinyChat(),
                                       base::RealClock(), &observer_})
                  .value();
  }
  ~ThreadedHarness() { engine_.reset(); }

  void Start() {
    const auto on_step = [this] {
      beat_thread_ = std::this_thread::get_id();
      ++beats_;
    };
    engine_->Start(on_step, [this](const absl::Status&) { ++fatal_; });
  }
  Engine& engine() { return *engine_; }
  kv::SessionStore& store() { return *store_; }
  FakeBackend& backend() { return backend_; }
  CountingObserver::Counts counts() const { return observer_.counts(); }
  int beats() const { return beats_; }
  // Of the last beat.
  std::thread::id beat_thread() const { return beat_thread_; }
  int fatal() const { return fatal_; }

  std::shared_ptr<RecordingSink> Submit(Request request) {
    auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(engine_->Submit(std::move(request), sink).ok());
    return sink;
  }

 private:
  CountingObserver observer_;
  FakeBackend backend_;
  std::unique_ptr<kv::SessionStore> store_;
  std::unique_ptr<Engine> engine_;
  std::atomic<int> beats_ = 0;
  std::atomic<std::thread::id> beat_thread_;
  std::atomic<int> fatal_ = 0;
};

void WaitFor(const std::function<bool()>& condition) {
  for (int i = 0; i < 60000 && !condition(); ++i) absl::SleepFor(absl::Milliseconds(1));
  ASSERT_TRUE(condition());
}

TEST(EngineTest, OptionsOutOfRangeAreNamed) {
  FakeBackend backend({.vocabulary_size = kVocabulary});
  const Engine::Parts parts = {&backend, nullptr,           &TinyTokenizer(),
                               nullptr,  base::RealClock(), base::NullObserver()};
  const EngineOptions good = {.context_tokens = 64, .vocabulary_size = kVocabulary};
  const auto refuses = [&](const EngineOptions& options, absl::string_view name) {
    const auto engine = Engine::Create(options, parts);
    return base::GetErrorReason(engine.status()) == ErrorReason::kInvalidField &&
           base::GetErrorInfo(engine.status())->metadata[0].first == name;
  };
  EngineOptions options = good;
  options.max_running = 33;
  EXPECT_TRUE(refuses(options, "max_running"));
  options = good;
  options.max_batch_tokens = options.max_running - 1;
  EXPECT_TRUE(refuses(options, "max_batch_tokens"));
  options = good;
  options.prefill_chunk_tokens = -1;
  EXPECT_TRUE(refuses(options, "prefill_chunk_tokens"));
  options = good;
  options.step_time_target = absl::ZeroDuration();
  EXPECT_TRUE(refuses(options, "step_time_target_ms"));
  options = good;
  options.vocabulary_size = kVocabulary - 1;
  EXPECT_TRUE(refuses(options, "vocabulary_size"));
  options = good;
  options.context_tokens = 0;
  EXPECT_TRUE(refuses(options, "context_tokens"));
}

TEST(EngineTest, BeatsWhileIdleAndWakesForWork) {
  ThreadedHarness harness;
  harness.Start();
  WaitFor([&] { return harness.beats() >= 3; });
  const auto sink = harness.Submit(TokensRequest({5, 6}, 10));
  WaitFor([&] { return sink->ended(); });
  EXPECT_EQ(sink->tokens().size(), 10u);
}

// Or a watchdog would hear nothing of a step that hangs.
TEST(EngineTest, DoesNotBeatWhileAStepIsHeld) {
  ThreadedHarness harness;
  std::atomic<bool> held = false, go_on = false;
  std::atomic<std::thread::id> step_thread;
  harness.backend().on_forward = [&](const ops::StepBatch&) {
    step_thread = std::this_thread::get_id();
    held = true;
    while (!go_on) absl::SleepFor(absl::Milliseconds(1));
    return absl::OkStatus();
  };
  harness.Start();
  const auto sink = harness.Submit(TokensRequest({5, 6}, 10));
  WaitFor([&] { return held.load(); });
  const int beats = harness.beats();
  // Longer than any pause between beats, and with all that may wake the engine.
  for (int i = 0; i < 15; ++i) {
    harness.engine().Wake();
    harness.engine().Snapshot();
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_EQ(harness.beats(), beats);
  go_on = true;
  WaitFor([&] { return sink->ended() && harness.beats() > beats; });
  EXPECT_EQ(harness.beat_thread(), step_thread.load());
}

TEST(EngineTest, DrainReturnsWhenNothingIsLeft) {
  ThreadedHarness harness;
  harness.Start();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 20; ++i) sinks.push_back(harness.Submit(TokensRequest({5}, 200)));
  harness.engine().Drain(absl::Seconds(60));
  for (const auto& sink : sinks) EXPECT_TRUE(sink->ended());
  EXPECT_EQ(base::GetErrorReason(
                harness.engine().Submit(TokensRequest({5}, 1), std::make_shared<RecordingSink>())),
            ErrorReason::kDraining);
}

TEST(EngineTest, ABackendFailureIsToldOnce) {
  ThreadedHarness harness;
  harness.backend().fail_forward_in = 5;
  const auto sink = harness.Submit(TokensRequest({5}, 200));
  harness.Start();
  WaitFor([&] { return harness.fatal() > 0; });
  EXPECT_EQ(base::GetErrorReason(*sink->failed()), ErrorReason::kBackendFailed);
  const int beats = harness.beats();
  WaitFor([&] { return harness.beats() > beats + 1; });
  EXPECT_EQ(harness.fatal(), 1);
}

TEST(EngineTest, DestroyingItEndsWhatRuns) {
  std::shared_ptr<RecordingSink> sink;
  {
    ThreadedHarness harness;
    harness.Start();
    sink = harness.Submit(TokensRequest({5}, 1000));
    WaitFor([&] { return !sink->tokens().empty(); });
    sink->SetWritable(false);
  }
  EXPECT_TRUE(sink->failed().has_value());
}

// Eight clients with turns, cancels, stops and sessions of their own and shared.
TEST(EngineTest, ManyClientsAtOnce) {
  constexpr int kClients = 8;
  constexpr int kTurns = 40;
  ThreadedHarness harness(
      {.max_running = 4, .max_queued = 6, .context_tokens = 1024, .vocabulary_size = kVocabulary});
  harness.Start();
  std::atomic<int> stops = 0;
  std::atomic<int> answers = 0;
  const auto client = [&](int number) {
    std::mt19937_64 rng(number);
    const auto below = [&rng](int n) { return static_cast<int>(rng() % static_cast<uint64_t>(n)); };
    for (int i = 0; i < kTurns; ++i) {
      Request request = TokensRequest(std::vector<int32_t>(1 + below(80), 5 + below(3)), below(60));
      request.id = absl::StrCat("client-", number, "-", i);
      const std::string id = request.id;
      if (below(3) != 0) request.session = OnSession(absl::StrCat("s", below(5)));
      if (below(4) == 0) {
        request.deadline = base::RealClock()->Monotonic() + absl::Milliseconds(below(20));
      }
      const auto sink = std::make_shared<RecordingSink>();
      if (!harness.engine().Submit(std::move(request), sink).ok()) continue;
      const int what = below(6);
      if (what < 2) absl::SleepFor(absl::Microseconds(below(2000)));
      if (what == 0) harness.engine().Cancel(sink.get());
      if (what == 1) {
        ++stops;
        harness.engine().Stop("p", id, below(2) == 0 ? std::nullopt : std::optional<int32_t>(0),
                              [&](const absl::StatusOr<Finished>&) { ++answers; });
      }
      if (what == 2) {
        sink->SetWritable(false);
        absl::SleepFor(absl::Microseconds(below(2000)));
        sink->SetWritable(true);
        harness.engine().Wake();
      }
      if (what == 3 && below(4) == 0) {
        (void)harness.store().DeleteSession("p", absl::StrCat("s", below(5)), std::nullopt, true);
        harness.engine().Wake();
      }
      (void)harness.engine().Snapshot();
      WaitFor([&] { return sink->ended(); });
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) threads.emplace_back(client, i);
  for (std::thread& thread : threads) thread.join();
  WaitFor([&] { return answers == stops; });
  const auto counts = harness.counts();
  int ends = 0;
  for (const auto& [reason, count] : counts.ends) ends += count;
  EXPECT_EQ(ends, kClients * kTurns);
  EXPECT_EQ(counts.generated, counts.first_tokens + counts.inter_tokens);
  const EngineSnapshot snapshot = harness.engine().Snapshot();
  EXPECT_EQ(snapshot.running + snapshot.waiting, 0);
  EXPECT_TRUE(harness.backend().problems().empty());
}

}  // namespace
}  // namespace tokend::engine
