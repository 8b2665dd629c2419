// Tokens drawn on a device are those that the host draws.
#include <memory>
#include <utility>
#include <vector>

#include "core/ops/backend.h"
#include "gtest/gtest.h"
#include "tests/core/engine/determinism_backends.h"
#include "tests/core/engine/harness.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT

// A backend that leaves drawing to the host.
class WithoutDraws : public ops::Backend {
 public:
  explicit WithoutDraws(std::shared_ptr<ops::Backend> backend) : backend_(std::move(backend)) {}
  ops::BackendInfo info() const override {
    ops::BackendInfo info = backend_->info();
    info.draws_tokens = false;
    return info;
  }
  absl::Status AllocateArena(int64_t pages) override { return backend_->AllocateArena(pages); }
  absl::Status Submit(const ops::StepBatch& batch) override { return backend_->Submit(batch); }
  absl::StatusOr<ops::StepOutput> Collect() override { return backend_->Collect(); }
  absl::Status CopyPages(absl::Span<const ops::PageCopy> copies) override {
    return backend_->CopyPages(copies);
  }

 private:
  const std::shared_ptr<ops::Backend> backend_;
};

TEST(CudaDrawTest, TokensAreThoseThatTheHostDraws) {
  std::vector<std::vector<int32_t>> tokens[2];
  for (const bool device : {false, true}) {
    HarnessOptions options;
    UseCuda(base::KvDtype::kF16, &options);
    EXPECT_TRUE(options.real_backend->info().draws_tokens);
    if (!device) options.real_backend = std::make_shared<WithoutDraws>(options.real_backend);
    Harness harness(options);
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 5; ++i) {
      Request request = TokensRequest(std::vector<int32_t>(4 + 7 * i, kFirstByte + i), 6);
      request.sampling.temperature = i == 0 ? 0 : 0.4f * static_cast<float>(i);
      request.sampling.seed = i;
      if (i % 2 == 1) request.sampling.top_k = 0;
      sinks.push_back(harness.Submit(std::move(request)));
    }
    harness.RunUntilIdle();
    for (const auto& sink : sinks) {
      EXPECT_EQ(sink->tokens().size(), 6u);
      tokens[device].push_back(sink->tokens());
    }
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

}  // namespace
}  // namespace tokend::engine
