#include "cuda_kernels/runtime/step_timer.h"

#include "cuda_kernels/kernels/probes.h"
#include "cuda_kernels/runtime/graph.h"
#include "gtest/gtest.h"

namespace tokend::cuda {
namespace {

absl::Status RunParts(const Stream& stream, StepTimer* timer) {
  absl::Status status = timer->Start(stream);
  for (const char* name : {"first", "second", "first"}) {
    status.Update(BoundaryProbe(false, 2, stream.get()));
    status.Update(timer->Mark(name, stream));
  }
  return status;
}

void ExpectParts(const StepTimer& timer) {
  const auto parts = timer.Read();
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_STREQ((*parts)[0].name, "first");
  EXPECT_EQ((*parts)[0].count, 2);
  EXPECT_STREQ((*parts)[1].name, "second");
  EXPECT_EQ((*parts)[1].count, 1);
  for (const PartTime& part : *parts) EXPECT_GT(part.seconds, 0) << part.name;
}

TEST(StepTimerTest, TimesPartsInAndOutOfGraphs) {
  const auto stream = Stream::Create();
  ASSERT_TRUE(stream.ok()) << stream.status();
  StepTimer timer;
  ASSERT_TRUE(RunParts(*stream, &timer).ok());
  ASSERT_TRUE(stream->Synchronize("test").ok());
  ExpectParts(timer);
  const auto graph = Graph::Capture(*stream, "test", [&] { return RunParts(*stream, &timer); });
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (int replay = 0; replay < 2; ++replay) {
    ASSERT_TRUE(graph->Launch(*stream).ok());
    ASSERT_TRUE(stream->Synchronize("test").ok());
    ExpectParts(timer);
  }
}

}  // namespace
}  // namespace tokend::cuda
