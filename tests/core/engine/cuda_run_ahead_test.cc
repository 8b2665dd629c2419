// On a device the next step is launched before this one's tokens are read.
#include <memory>
#include <utility>
#include <vector>

#include "core/ops/backend.h"
#include "gtest/gtest.h"
#include "tests/core/engine/determinism_backends.h"
#include "tests/core/engine/harness.h"
#include "tests/simt/control.h"
#include "tests/simt/cudart_state.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT

// Counts the steps after whose end the device still has work. With streams that run
// late none of that work has begun by then.
class Watched : public ops::Backend {
 public:
  Watched(std::shared_ptr<ops::Backend> backend, int steps_in_flight)
      : backend_(std::move(backend)), steps_in_flight_(steps_in_flight) {}
  ops::BackendInfo info() const override {
    ops::BackendInfo info = backend_->info();
    info.steps_in_flight = steps_in_flight_;
    return info;
  }
  absl::Status AllocateArena(int64_t pages) override { return backend_->AllocateArena(pages); }
  absl::Status Submit(const ops::StepBatch& batch) override { return backend_->Submit(batch); }
  absl::StatusOr<ops::StepOutput> Collect() override {
    auto output = backend_->Collect();
    bool more = false;
    for (const CUstream_st* stream : simt::Cudart::Get().streams) {
      more = more || !stream->waiting.empty();
    }
    if (more) ++launched_ahead;
    return output;
  }
  absl::Status CopyPages(absl::Span<const ops::PageCopy> copies) override {
    return backend_->CopyPages(copies);
  }
  int launched_ahead = 0;

 private:
  const std::shared_ptr<ops::Backend> backend_;
  const int steps_in_flight_;
};

class LateStreams {
 public:
  LateStreams() {
    simt::Schedule schedule = before_;
    schedule.late_streams = true;
    simt::SetSchedule(schedule);
  }
  ~LateStreams() { simt::SetSchedule(before_); }

 private:
  const simt::Schedule before_ = simt::CurrentSchedule();
};

TEST(CudaRunAheadTest, TokensAreThoseThatAreWaitedFor) {
  const LateStreams late;
  std::vector<std::vector<int32_t>> tokens[2];
  for (const bool ahead : {false, true}) {
    HarnessOptions options;
    UseCuda(base::KvDtype::kF16, &options);
    EXPECT_EQ(options.real_backend->info().steps_in_flight, 2);
    const auto watched = std::make_shared<Watched>(options.real_backend, ahead ? 2 : 1);
    options.real_backend = watched;
    Harness harness(options);
    for (int round = 0; round < 2; ++round) {
      std::vector<std::shared_ptr<RecordingSink>> sinks;
      for (int i = 0; i < 3; ++i) {
        Request request =
            TokensRequest(std::vector<int32_t>(4 + 9 * i, kFirstByte + i), 12 + 3 * i);
        request.sampling.temperature = 0.7f;
        request.sampling.seed = i;
        if (i == 1) request.session = OnSession("a");
        if (i == 2) {
          request.session = OnSession("w");
          request.session->spec_if_missing =
              kv::SessionSpec{.retention = {kv::RetentionPolicy::Kind::kSlidingWindow, 2, 12}};
        }
        // Ends early, while the next step is under way.
        if (i == 0 && round == 1) request.stop.token_ids = {tokens[0][0].at(4)};
        sinks.push_back(harness.Submit(std::move(request)));
      }
      harness.RunUntilIdle();
      for (const auto& sink : sinks) {
        EXPECT_TRUE(sink->finished().has_value());
        tokens[ahead].push_back(sink->tokens());
      }
    }
    EXPECT_EQ(watched->launched_ahead > 15, ahead) << watched->launched_ahead;
    EXPECT_EQ(watched->launched_ahead > 0, ahead);
  }
  EXPECT_EQ(tokens[1], tokens[0]);
  EXPECT_LE(tokens[0][3].size(), 4u);
}

}  // namespace
}  // namespace tokend::engine
