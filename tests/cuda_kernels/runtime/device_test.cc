// What opening a device says, for each way in which it can be missing or unfit.
#include "cuda_kernels/runtime/device.h"

#include <driver_types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "cuda_kernels/runtime/cuda_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simt/control.h"

namespace tokend::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class DeviceTest : public ::testing::Test {
 protected:
  ~DeviceTest() override { simt::ResetDevice(); }
};

TEST_F(DeviceTest, TellsWhatItIs) {
  simt::DeviceModel model;
  model.major = 8;
  model.minor = 7;
  model.multiprocessors = 16;
  simt::SetDevice(model);
  const DeviceInfo info = OpenDevice(0).value();
  EXPECT_EQ(info.ToString(), "cuda:0 (SIMT stand-in, 8.7, 16 multiprocessors)");
  EXPECT_FALSE(info.dependent_launch);
  EXPECT_FALSE(info.integrated);
  EXPECT_EQ(info.memory_bytes, int64_t{1} << 30);
  EXPECT_GE(info.shared_bytes_per_multiprocessor, info.shared_bytes_per_block);
  EXPECT_GT(info.shared_bytes_per_block, 48 * 1024);
  EXPECT_GT(info.l2_bytes, 0);
  simt::ResetDevice();
  EXPECT_TRUE(OpenDevice(0)->dependent_launch);
}

TEST_F(DeviceTest, NamesTheRemedy) {
  simt::DeviceModel model;
  model.driver_version = 0;
  simt::SetDevice(model);
  absl::Status status = OpenDevice(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("580"),
                                     HasSubstr("JetPack 7.2"), Not(HasSubstr("\n"))));
  model.driver_version = 12060;
  simt::SetDevice(model);
  status = OpenDevice(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("CUDA 12.6"), HasSubstr("580 or later")));
  model = {};
  model.count = 0;
  simt::SetDevice(model);
  status = OpenDevice(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("no device"));
  model = {};
  model.major = 7;
  model.minor = 5;
  simt::SetDevice(model);
  status = OpenDevice(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("7.5"), HasSubstr("8.0")));
}

TEST_F(DeviceTest, ListsTheDevicesThatThereAre) {
  simt::DeviceModel model;
  model.count = 2;
  simt::SetDevice(model);
  EXPECT_TRUE(OpenDevice(1).ok());
  for (const int ordinal : {-1, 2}) {
    const absl::Status status = OpenDevice(ordinal).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(Message(status), AllOf(HasSubstr(absl::StrCat("cuda:", ordinal, ",")),
                                       HasSubstr("cuda:0 (SIMT stand-in), cuda:1 (SIMT")));
  }
}

TEST_F(DeviceTest, TellsWhatMayWorkLater) {
  using absl::StatusCode;
  const std::vector<std::pair<cudaError_t, StatusCode>> cases = {
      {cudaErrorInsufficientDriver, StatusCode::kFailedPrecondition},
      {cudaErrorUnsupportedPtxVersion, StatusCode::kFailedPrecondition},
      {cudaErrorNoKernelImageForDevice, StatusCode::kFailedPrecondition},
      {cudaErrorSystemDriverMismatch, StatusCode::kFailedPrecondition},
      {cudaErrorDevicesUnavailable, StatusCode::kUnavailable},
      {cudaErrorSystemNotReady, StatusCode::kUnavailable},
      {cudaErrorOperatingSystem, StatusCode::kUnavailable},
      {cudaErrorMemoryAllocation, StatusCode::kResourceExhausted},
  };
  for (const auto& [error, code] : cases) {
    simt::FailCall("cudaFuncGetAttributes", 0, error);
    const absl::Status status = OpenDevice(0).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("cuda: "), HasSubstr(": "))) << status;
  }
  EXPECT_TRUE(OpenDevice(0).ok());
}

// Whatever call fails, it says so and the next attempt works.
TEST_F(DeviceTest, EachCallMayFail) {
  ASSERT_TRUE(OpenDevice(0).ok());
  const int calls = simt::CallCount();
  ASSERT_GE(calls, 5);
  for (int i = 0; i < calls; ++i) {
    simt::FailCall("", i, cudaErrorDevicesUnavailable);
    EXPECT_EQ(OpenDevice(0).status().code(), absl::StatusCode::kUnavailable) << i;
    EXPECT_TRUE(OpenDevice(0).ok()) << i;
  }
}

TEST_F(DeviceTest, MemoryThatIsNotThereIsSaidInNumbers) {
  simt::DeviceModel model;
  model.memory_bytes = 64 << 20;
  simt::SetDevice(model);
  const DeviceInfo info = OpenDevice(0).value();
  EXPECT_TRUE(CheckMemory(info, 64 << 20, "the weights").ok());
  const absl::Status status = CheckMemory(info, (64 << 20) + 1, "the weights");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("the weights"), HasSubstr("64 MiB free")));
  EXPECT_EQ(base::GetErrorReason(status), base::ErrorReason::kUnspecified);
}

TEST_F(DeviceTest, IntegratedMemoryIsWhatTheHostCanGive) {
  simt::DeviceModel model;
  model.integrated = true;
  model.memory_bytes = size_t{1} << 50;
  simt::SetDevice(model);
  const DeviceMemory memory = ReadDeviceMemory(OpenDevice(0).value()).value();
  EXPECT_GT(memory.free_bytes, 0);
  EXPECT_LT(memory.free_bytes, int64_t{1} << 50) << "not what the driver says";
}

TEST(CudaStatus, TellsAStickyErrorApart) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "x").ok());
  const absl::Status lost = CudaStatus(cudaErrorIllegalAddress, "Attention");
  EXPECT_EQ(base::GetErrorReason(lost), base::ErrorReason::kBackendFailed);
  EXPECT_THAT(Message(lost), AllOf(HasSubstr("Attention"), HasSubstr("only a new process")));
  EXPECT_TRUE(IsSticky(cudaErrorIllegalAddress));
  EXPECT_FALSE(IsSticky(cudaErrorInvalidValue));
  EXPECT_FALSE(IsSticky(cudaErrorMemoryAllocation));
  EXPECT_THAT(Message(CudaStatus(cudaErrorInvalidValue, "Attention")),
              Not(HasSubstr("new process")));
  EXPECT_EQ(CudaStatus(cudaErrorMemoryAllocation, "pages").code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tokend::cuda
