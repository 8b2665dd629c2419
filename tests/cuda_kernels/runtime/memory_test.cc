// Buffers, streams, events and graphs: what they free, and what they say when any call
// fails.
#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "cuda_kernels/runtime/buffer.h"
#include "cuda_kernels/runtime/graph.h"
#include "cuda_kernels/runtime/stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simt/control.h"

namespace tokend::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MemoryTest : public ::testing::Test {
 protected:
  ~MemoryTest() override {
    EXPECT_EQ(simt::DeviceBytesInUse(), 0u);
    simt::ResetDevice();
  }
};

TEST_F(MemoryTest, BuffersGoWithTheirOwner) {
  DeviceBuffer a = DeviceBuffer::Allocate(1000, "a").value();
  EXPECT_EQ(a.bytes(), 1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 256, 0u);
  EXPECT_EQ(reinterpret_cast<std::byte*>(a.as<float>(8)), a.data() + 8);
  DeviceBuffer b = std::move(a);
  EXPECT_EQ(a.bytes(), 0);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(b.bytes(), 1000);
  EXPECT_EQ(simt::DeviceBytesInUse(), 1000u);
  b = DeviceBuffer::Allocate(10, "b").value();
  EXPECT_EQ(simt::DeviceBytesInUse(), 10u);
  b = DeviceBuffer();
  EXPECT_EQ(simt::DeviceBytesInUse(), 0u);
  const DeviceBuffer none = DeviceBuffer::Allocate(0, "none").value();
  EXPECT_EQ(none.data(), nullptr);
}

TEST_F(MemoryTest, NoMemoryNamesWhatItWasFor) {
  const absl::Status status = DeviceBuffer::Allocate(int64_t{2} << 30, "the KV pages").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("2048 MiB of device memory"), HasSubstr("the KV pages")));
  simt::FailCall("cudaHostAlloc", 0, cudaErrorMemoryAllocation);
  EXPECT_THAT(std::string(PinnedBuffer::Allocate(1, "logits").status().message()),
              AllOf(HasSubstr("pinned host memory"), HasSubstr("logits")));
  // It leaves nothing behind.
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_TRUE(DeviceBuffer::Allocate(1 << 20, "weights").ok());
}

// Doubles what a stream carries through the device: every class and call once.
absl::Status CopyThrough(const std::vector<char>& in, std::vector<char>* out) {
  const auto bytes = static_cast<int64_t>(in.size());
  TOKEND_ASSIGN_OR_RETURN(const Stream stream, Stream::Create(StreamPriority::kHigh));
  TOKEND_ASSIGN_OR_RETURN(const Event copied, Event::CreateTimed());
  TOKEND_ASSIGN_OR_RETURN(const Event done, Event::CreateTimed());
  TOKEND_ASSIGN_OR_RETURN(const PinnedBuffer host, PinnedBuffer::Allocate(bytes, "host"));
  TOKEND_ASSIGN_OR_RETURN(const DeviceBuffer first, DeviceBuffer::Allocate(bytes, "first"));
  TOKEND_ASSIGN_OR_RETURN(const DeviceBuffer second, DeviceBuffer::Allocate(bytes, "second"));
  std::memcpy(host.data(), in.data(), in.size());
  TOKEND_ASSIGN_OR_RETURN(
      const Graph graph, Graph::Capture(stream, "through", [&] {
        absl::Status status = stream.CopyToDevice(first.data(), host.data(), bytes, "in");
        if (!status.ok()) return status;
        status = stream.CopyOnDevice(second.data(), first.data(), bytes, "over");
        if (!status.ok()) return status;
        status = stream.Zero(second.data(), 1, "zero");
        if (!status.ok()) return status;
        return stream.CopyToHost(host.data(), second.data(), bytes, "out");
      }));
  if (graph.nodes() != 4) return absl::InternalError("nodes");
  std::memset(host.data(), 0, in.size());
  std::memcpy(host.data(), in.data(), in.size());
  TOKEND_RETURN_IF_ERROR(stream.Record(copied));
  TOKEND_RETURN_IF_ERROR(graph.Launch(stream));
  TOKEND_RETURN_IF_ERROR(stream.Record(done));
  TOKEND_RETURN_IF_ERROR(stream.WaitFor(done));
  TOKEND_RETURN_IF_ERROR(done.Synchronize("through"));
  TOKEND_RETURN_IF_ERROR(stream.Synchronize("through"));
  TOKEND_RETURN_IF_ERROR(done.MillisecondsSince(copied).status());
  std::memcpy(out->data(), host.data(), in.size());
  return absl::OkStatus();
}

TEST_F(MemoryTest, AGraphReplaysWhatWasRecorded) {
  const std::vector<char> in = {1, 2, 3, 4, 5};
  std::vector<char> out(5);
  ASSERT_TRUE(CopyThrough(in, &out).ok());
  EXPECT_THAT(out, ::testing::ElementsAre(0, 2, 3, 4, 5));
}

// One call after the other fails, those that free left alone: they have nobody to tell.
TEST_F(MemoryTest, EachCallMayFailAndNothingLeaks) {
  const std::vector<char> in = {1, 2, 3};
  std::vector<char> out(3);
  for (const char* name :
       {"cudaDeviceGetStreamPriorityRange", "cudaStreamCreateWithPriority",
        "cudaEventCreateWithFlags", "cudaHostAlloc", "cudaMalloc", "cudaStreamBeginCapture",
        "cudaMemcpyAsync", "cudaMemsetAsync", "cudaStreamEndCapture", "cudaGraphGetNodes",
        "cudaGraphInstantiate", "cudaGraphUpload", "cudaGraphLaunch", "cudaEventRecord",
        "cudaStreamWaitEvent", "cudaEventSynchronize", "cudaStreamSynchronize",
        "cudaEventElapsedTime"}) {
    int failed = 0;
    for (;; ++failed) {
      simt::FailCall(name, failed, cudaErrorInvalidValue);
      const absl::Status status = CopyThrough(in, &out);
      EXPECT_EQ(simt::DeviceBytesInUse(), 0u) << name;
      if (status.ok()) break;
      EXPECT_EQ(base::GetErrorReason(status), base::ErrorReason::kBackendFailed) << status;
      ASSERT_TRUE(CopyThrough(in, &out).ok()) << name;
    }
    EXPECT_GT(failed, 0) << name << " is not called";
    simt::ResetDevice();
  }
}

TEST_F(MemoryTest, AFailedRecordingLeavesTheStreamUsable) {
  const Stream stream = Stream::Create().value();
  const absl::Status status =
      Graph::Capture(stream, "g", [] { return absl::CancelledError("no"); }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(stream.Synchronize("after").ok());
}

TEST_F(MemoryTest, AStickyErrorFailsEverythingAfter) {
  const Stream stream = Stream::Create().value();
  simt::FailCall("cudaStreamSynchronize", 0, cudaErrorIllegalAddress);
  EXPECT_EQ(base::GetErrorReason(stream.Synchronize("decode")), base::ErrorReason::kBackendFailed);
  EXPECT_EQ(base::GetErrorReason(stream.Synchronize("decode")), base::ErrorReason::kBackendFailed);
  EXPECT_FALSE(DeviceBuffer::Allocate(1, "x").ok());
  simt::ResetDevice();
}

}  // namespace
}  // namespace tokend::cuda
