// Which device the settings come to, what is refused, and the library behind it.
#include "service/device.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/cuda_library.h"
#include "service/exit_code.h"

namespace tokend::service {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = DeviceSetting::Kind;

const std::string kFake = TOKEND_TEST_CUDA_LIBRARY;
const std::string kOther = TOKEND_TEST_OTHER_CUDA_LIBRARY;
const std::string kNowhere = "/nonexistent/lib/libtokend_cuda.so";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

Settings With(Kind kind, int ordinal = 0) {
  Settings out;
  out.device = {kind, ordinal};
  return out;
}

class DeviceChoice : public ::testing::Test {
 protected:
  ~DeviceChoice() override { unsetenv("TOKEND_TEST_CUDA"); }
  static void Fail(const char* code) { setenv("TOKEND_TEST_CUDA", code, 1); }
  static absl::StatusOr<Device> Choose(const Settings& settings, const std::string& path = kFake) {
    return ChooseDevice(settings, {path});
  }
};

TEST_F(DeviceChoice, LooksBesideTheProgramFirst) {
  const std::vector<std::string> paths = CudaLibraryPaths();
  ASSERT_GE(paths.size(), 2u);
  EXPECT_THAT(paths.front(), AllOf(StartsWith("/"), EndsWith("/lib/libtokend_cuda.so")));
  EXPECT_EQ(paths.back(), "libtokend_cuda.so");
}

TEST_F(DeviceChoice, ALibraryIsOfThisBuildOrRefused) {
  EXPECT_TRUE(LoadCudaLibrary({kNowhere, kFake}).ok());
  const absl::Status none = LoadCudaLibrary({kNowhere, "libtokend_cuda_nowhere.so"}).status();
  EXPECT_THAT(Message(LoadCudaLibrary({kNowhere}).status()), HasSubstr(kNowhere));
  EXPECT_FALSE(none.ok());
  const absl::Status other = LoadCudaLibrary({kOther, kFake}).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(other), AllOf(HasSubstr("another build (\"0.0.0 other\""),
                                    HasSubstr("install both"), HasSubstr(kOther)));
  const std::string text = ::testing::TempDir() + "/libtokend_cuda.so";
  std::ofstream(text) << "no library\n";
  EXPECT_EQ(LoadCudaLibrary({text}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(DeviceChoice, AutoTakesWhatIsThere) {
  const Device cuda = Choose(With(Kind::kAuto)).value();
  EXPECT_EQ(cuda.kind(), "cuda");
  EXPECT_TRUE(cuda.may_fall_back);
  EXPECT_EQ(Choose(With(Kind::kAuto), kNowhere)->kind(), "cpu");
  EXPECT_EQ(Choose(With(Kind::kAuto), kOther)->kind(), "cpu");
  EXPECT_EQ(Choose(With(Kind::kCpu))->kind(), "cpu");
  for (const char* code : {"FAILED_PRECONDITION", "NOT_FOUND", "UNAVAILABLE"}) {
    Fail(code);
    EXPECT_EQ(Choose(With(Kind::kAuto))->kind(), "cpu") << code;
  }
}

// systemd starts it again only where that can help.
TEST_F(DeviceChoice, CudaIsTakenOrTheStartEnds) {
  const Device second = Choose(With(Kind::kCuda, 1)).value();
  EXPECT_EQ(second.info.ordinal, 1);
  EXPECT_FALSE(second.may_fall_back);
  const auto exit_code = [](const absl::StatusOr<Device>& device) {
    return ExitCodeOf(device.status());
  };
  EXPECT_EQ(exit_code(Choose(With(Kind::kCuda), kNowhere)), ExitCode::kBadConfig);
  EXPECT_EQ(exit_code(Choose(With(Kind::kCuda), kOther)), ExitCode::kBadConfig);
  Fail("FAILED_PRECONDITION");
  const auto old = Choose(With(Kind::kCuda));
  EXPECT_EQ(exit_code(old), ExitCode::kBadConfig);
  EXPECT_EQ(Message(old.status()), "device: old driver");
  Fail("NOT_FOUND");
  EXPECT_EQ(exit_code(Choose(With(Kind::kCuda))), ExitCode::kBadConfig);
  Fail("UNAVAILABLE");
  EXPECT_EQ(exit_code(Choose(With(Kind::kCuda))), ExitCode::kFailed);
}

TEST_F(DeviceChoice, WhatADeviceLacksIsRefusedByName) {
  Settings settings = With(Kind::kCuda);
  settings.activations = base::Activations::kInt16;
  EXPECT_THAT(Message(Choose(settings).status()), StartsWith("activations: int16 is for the CPU"));
  settings.device.kind = Kind::kAuto;
  EXPECT_EQ(Choose(settings)->kind(), "cpu") << "what is set decides";
  settings.activations = base::Activations::kF32;
  EXPECT_EQ(Choose(settings)->kind(), "cuda");
  settings.activations = base::Activations::kF16;
  EXPECT_EQ(Choose(settings)->kind(), "cuda");
  EXPECT_THAT(Message(Choose(settings, kNowhere).status()), StartsWith("activations: f16"));
  settings.device.kind = Kind::kCpu;
  EXPECT_THAT(Message(Choose(settings).status()), StartsWith("activations: f16 is for CUDA"));

  settings = With(Kind::kCuda);
  settings.kv_dtype = base::KvDtype::kF32;
  EXPECT_THAT(Message(Choose(settings).status()), StartsWith("kv_dtype: f32"));
  settings.kv_dtype = base::KvDtype::kInt8;
  EXPECT_TRUE(Choose(settings).ok());

  settings = With(Kind::kCpu);
  settings.kv_memory_fraction = 0.5;
  EXPECT_THAT(Message(Choose(settings).status()), StartsWith("kv_memory_fraction: "));
  settings = With(Kind::kCpu);
  settings.high_stream_priority = false;
  EXPECT_THAT(Message(Choose(settings).status()), StartsWith("stream_priority: "));
  settings = With(Kind::kCuda);
  settings.default_retention.kind = kv::RetentionPolicy::Kind::kHeavyHitters;
  EXPECT_THAT(Message(Choose(settings).status()), StartsWith("default_retention: heavy_hitters"));
}

TEST_F(DeviceChoice, FallsBackOnlyWhereNobodyAskedForCuda) {
  const Settings settings = With(Kind::kAuto);
  const Device cuda = Choose(settings).value();
  const absl::Status memory = absl::ResourceExhaustedError("too little memory");
  EXPECT_EQ(FallBack(cuda, settings, memory)->kind(), "cpu");
  EXPECT_EQ(FallBack(cuda, settings, absl::UnimplementedError("head size"))->kind(), "cpu");
  const absl::Status broken = absl::InternalError("broken");
  EXPECT_EQ(FallBack(cuda, settings, broken).status(), broken);
  Settings wants_f16 = settings;
  wants_f16.activations = base::Activations::kF16;
  EXPECT_EQ(FallBack(cuda, wants_f16, memory).status(), memory);
  const Device asked_for = Choose(With(Kind::kCuda)).value();
  EXPECT_EQ(FallBack(asked_for, settings, memory).status(), memory);
}

}  // namespace
}  // namespace tokend::service
