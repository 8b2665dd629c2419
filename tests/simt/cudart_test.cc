// The fake of the CUDA runtime: memory, failures on demand, captured work.
#include "tests/simt/run_kernel.h"

namespace tokend::simt {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class CudartFake : public SimtTest {};

struct AddParams {
  int* value = nullptr;
  int amount = 0;
};

__global__ void AddKernel(AddParams params) { *params.value += params.amount; }

absl::Status Add(int* value, int amount, cudaStream_t stream) {
  cuda::LaunchDims dims;
  dims.threads = 1;
  return cuda::Launch("Add", AddKernel, dims, AddParams{value, amount}, stream);
}

TEST_F(CudartFake, MemoryIsFilledCountedAndLimited) {
  DeviceModel device;
  device.memory_bytes = 1000;
  SetDevice(device);
  const size_t before = DeviceBytesInUse();
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 600), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
  EXPECT_THAT(std::vector<unsigned char>(static_cast<unsigned char*>(memory),
                                         static_cast<unsigned char*>(memory) + 600),
              Each(0xff));
  void* more = &more;
  EXPECT_EQ(cudaMalloc(&more, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "no device loses itself over this";
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(free_bytes, 400u);
  EXPECT_EQ(cudaFree(static_cast<char*>(memory) + 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(DeviceBytesInUse(), before);
}

TEST_F(CudartFake, AGraphReplaysLaunchesAndCopiesWithTheirParameters) {
  int value = 1;
  int copy = 0;
  int amount = 10;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_TRUE(Add(&value, amount, stream).ok());
  amount = 1000;  // the launch has its own
  ASSERT_EQ(cudaMemcpyAsync(&copy, &value, sizeof(int), cudaMemcpyDefault, stream), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(&value, 0, 1, stream), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(copy, 0);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  value = 7;
  ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  EXPECT_EQ(copy, 17);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// A host that does not wait sees nothing of what a stream was given.
TEST_F(CudartFake, ALateStreamRunsWhenSomebodyWaits) {
  Schedule schedule;
  schedule.late_streams = true;
  SetSchedule(schedule);
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  int* pinned = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)), cudaSuccess);
  int value = 1;
  *pinned = 0;
  ASSERT_TRUE(Add(&value, 1, stream).ok());
  ASSERT_EQ(cudaMemcpyAsync(pinned, &value, sizeof(int), cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  ASSERT_TRUE(Add(&value, 1, stream).ok());
  EXPECT_EQ(*pinned, 0);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(value, 2);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(value, 3);
  ASSERT_TRUE(Add(&value, 1, stream).ok());
  EXPECT_EQ(value, 3);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(value, 4);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CudartFake, ACaptureForbidsAllocations) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CudartFake, FailsTheCallThatATestNames) {
  int value = 0;
  FailCall("Add", 1, cudaErrorMemoryAllocation);
  EXPECT_TRUE(Add(&value, 1, nullptr).ok());
  EXPECT_EQ(Add(&value, 1, nullptr).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Add(&value, 1, nullptr).ok());
  EXPECT_EQ(value, 2);
  const int calls = CallCount();
  FailCall("", 0, cudaErrorMemoryAllocation);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorMemoryAllocation);
  EXPECT_EQ(CallCount(), calls + 1);
}

TEST_F(CudartFake, SomeErrorsStay) {
  int value = 0;
  FailCall("Add", 0, cudaErrorIllegalAddress);
  EXPECT_EQ(Add(&value, 1, nullptr).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Add(&value, 1, nullptr).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  ResetDevice();
  EXPECT_TRUE(Add(&value, 1, nullptr).ok());
}

TEST_F(CudartFake, RefusesWhatNoDeviceLaunches) {
  AddParams params;
  cuda::LaunchDims dims;
  dims.threads = 1025;
  EXPECT_FALSE(cuda::Launch("Add", AddKernel, dims, params, nullptr).ok());
  dims.threads = 1;
  dims.shared_bytes = 228 * 1024;
  EXPECT_FALSE(cuda::Launch("Add", AddKernel, dims, params, nullptr).ok());
  dims.shared_bytes = 0;
  dims.grid_x = 0;
  EXPECT_FALSE(cuda::Launch("Add", AddKernel, dims, params, nullptr).ok());
}

TEST_F(CudartFake, ShowsTheDeviceThatATestSets) {
  DeviceModel device;
  device.count = 0;
  SetDevice(device);
  int count = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  device = {.major = 8, .minor = 7, .multiprocessors = 16, .integrated = true};
  SetDevice(device);
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(properties.major * 10 + properties.minor, 87);
  int integrated = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, 0), cudaSuccess);
  EXPECT_EQ(integrated, 1);
}

}  // namespace
}  // namespace tokend::simt
