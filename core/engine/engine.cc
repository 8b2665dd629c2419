#include "core/engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/engine/scheduler.h"

namespace tokend::engine {
namespace {

absl::Status CheckRange(absl::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return base::InvalidField(name, absl::StrCat(value, " is not in [", low, ", ", high, "]"));
}

absl::Status CheckOptions(const EngineOptions& options, const Engine::Parts& parts) {
  constexpr int64_t kMax = int64_t{1} << 30;
  TOKEND_RETURN_IF_ERROR(CheckRange("max_running", options.max_running, 1, 32));
  TOKEND_RETURN_IF_ERROR(
      CheckRange("max_batch_tokens", options.max_batch_tokens, options.max_running, kMax));
  TOKEND_RETURN_IF_ERROR(CheckRange("prefill_chunk_tokens", options.prefill_chunk_tokens, 0, kMax));
  TOKEND_RETURN_IF_ERROR(CheckRange("page_tokens", options.page_tokens, 1, kMax));
  TOKEND_RETURN_IF_ERROR(CheckRange("max_queued", options.max_queued, 0, kMax));
  TOKEND_RETURN_IF_ERROR(CheckRange("context_tokens", options.context_tokens, 1, kMax));
  TOKEND_RETURN_IF_ERROR(CheckRange("vocabulary_size", options.vocabulary_size,
                                    parts.tokenizer->vocabulary_size(), kMax));
  if (options.step_time_target <= absl::ZeroDuration()) {
    return base::InvalidField("step_time_target_ms", "is not positive");
  }
  if (options.stall_timeout <= absl::ZeroDuration()) {
    return base::InvalidField("stall_timeout_ms", "is not positive");
  }
  return absl::OkStatus();
}

class ThreadedEngine : public Engine {
 public:
  ThreadedEngine(const EngineOptions& options, const Parts& parts) : scheduler_(options, parts) {}

  ~ThreadedEngine() override {
    stopping_ = true;
    scheduler_.Wake();
    if (thread_.joinable()) thread_.join();
    scheduler_.Shutdown();
  }

  void Start(std::function<void()> on_step,
             std::function<void(const absl::Status&)> on_fatal) override {
    thread_ = std::thread([this, on_step = std::move(on_step), on_fatal = std::move(on_fatal)] {
      Run(on_step, on_fatal);
    });
  }

  absl::Status Submit(Request request, std::shared_ptr<TurnSink> sink) override {
    return scheduler_.Submit(std::move(request), std::move(sink));
  }

  void Cancel(const TurnSink* sink) override { scheduler_.Cancel(sink); }

  void Stop(absl::string_view principal, absl::string_view request_id,
            std::optional<int32_t> keep_output_tokens, StopCallback done) override {
    scheduler_.Stop(principal, request_id, keep_output_tokens, std::move(done));
  }

  void Wake() override { scheduler_.Wake(); }

  void Drain(absl::Duration timeout) override {
    scheduler_.BeginDrain(timeout);
    scheduler_.WaitUntilEmpty();
  }

  EngineSnapshot Snapshot() override { return scheduler_.Snapshot(); }

 private:
  void Run(const std::function<void()>& on_step,
           const std::function<void(const absl::Status&)>& on_fatal) {
    pthread_setname_np(pthread_self(), "tokend-engine");
    while (!stopping_) {
      const absl::StatusOr<bool> ran = scheduler_.StepOnce();
      on_step();
      if (!ran.ok()) on_fatal(ran.status());
      if (!ran.ok() || !*ran) scheduler_.Wait(scheduler_.IdleTime());
    }
  }

  Scheduler scheduler_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options,
                                                       const Parts& parts) {
  TOKEND_RETURN_IF_ERROR(CheckOptions(options, parts));
  return std::make_unique<ThreadedEngine>(options, parts);
}

}  // namespace tokend::engine
