// Whatever call of the CUDA runtime fails, a backend says so and leaves nothing behind.
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "cuda_kernels/backend/cuda_backend.h"
#include "gtest/gtest.h"
#include "tests/simt/control.h"
#include "tests/support/backend_checks.h"
#include "tests/support/paged_runner.h"
#include "tests/support/random_model.h"
#include "tests/support/run_in_child.h"

namespace tokend::cuda {
namespace {

testing::RandomModelOptions Tiny() {
  testing::RandomModelOptions options;
  options.layers = 1;
  options.width = 32;
  options.ffn_width = 32;
  options.heads = 2;
  options.kv_heads = 1;
  options.vocabulary_size = 40;
  return options;
}

CudaBackendOptions Options(const DeviceInfo& device) {
  CudaBackendOptions options;
  options.device = device;
  options.max_batch_tokens = 8;
  options.max_sequences = 2;
  return options;
}

// From the start to a fork: every call that a backend makes.
absl::Status UseOnce(const testing::RandomModel& model) {
  const absl::StatusOr<DeviceInfo> device = OpenDevice(0);
  if (!device.ok()) return device.status();
  auto backend = CudaBackend::Create(model.plan(), Options(*device));
  if (!backend.ok()) return backend.status();
  const absl::Status arena = (*backend)->AllocateArena(8);
  if (!arena.ok()) return arena;
  testing::PagedRunner runner(backend->get(), 1, 16, 8, /*seed=*/1);
  testing::PagedRunner::Sequence sequence = runner.NewSequence();
  const std::vector<int32_t> tokens = model.Tokens(9, 1);
  for (const int64_t chunk : {8, 1}) {
    const auto logits = runner.Run(&sequence, tokens, chunk);
    if (!logits.ok()) return logits.status();
  }
  const ops::PageCopy copy = {base::PageId{0}, base::PageId{7}, 3};
  return (*backend)->CopyPages({&copy, 1});
}

constexpr int kMaxCalls = 2000;

TEST(BackendFaultsTest, WithoutMemoryNothingIsLeftBehind) {
  const testing::RandomModel model(Tiny());
  simt::ResetDevice();
  ASSERT_TRUE(UseOnce(model).ok());
  const size_t before = simt::DeviceBytesInUse();
  int failures = 0;
  for (int call = 0; call < kMaxCalls; ++call) {
    simt::ResetDevice();
    simt::FailCall("", call, cudaErrorMemoryAllocation);
    const absl::Status status = UseOnce(model);
    if (status.ok()) break;
    ++failures;
    EXPECT_FALSE(status.message().empty()) << "call " << call;
    EXPECT_EQ(simt::DeviceBytesInUse(), before) << "call " << call << ": " << status;
  }
  EXPECT_GT(failures, 20);
  EXPECT_LT(failures, kMaxCalls);
  simt::ResetDevice();
  EXPECT_TRUE(UseOnce(model).ok());
}

// An error that no process gets over: even memory cannot be given back, so each try
// has a process of its own.
TEST(BackendFaultsTest, ALostDeviceIsAStatus) {
  const testing::RandomModel model(Tiny());
  int failures = 0;
  for (int call = 0; call < kMaxCalls; call += 7) {
    struct Report {
      bool ok = false;
      bool backend_failed = false;
      char message[200] = {};
    } report;
    const std::string death = testing::RunInChild<Report>(
        [&](Report* out) {
          simt::ResetDevice();
          simt::FailCall("", call, cudaErrorIllegalAddress);
          const absl::Status status = UseOnce(model);
          out->ok = status.ok();
          status.ToString().copy(out->message, sizeof(out->message) - 1);
          out->backend_failed = base::GetErrorReason(status) == base::ErrorReason::kBackendFailed;
        },
        /*quiet=*/true, &report);
    EXPECT_EQ(death, "") << "call " << call;
    if (report.ok) break;
    ++failures;
    // Opening says in its own words why there is no device.
    EXPECT_TRUE(report.backend_failed || call <= 20) << "call " << call << ": " << report.message;
  }
  EXPECT_GT(failures, 3);
}

TEST(CudaBackendOptionsTest, WhatItDoesNotHaveIsRefusedByName) {
  simt::ResetDevice();
  const testing::RandomModel model(Tiny());
  const auto device = OpenDevice(0);
  ASSERT_TRUE(device.ok());
  const auto message = [&](auto change) {
    CudaBackendOptions options = Options(*device);
    change(&options);
    return std::string(CudaBackend::Create(model.plan(), options).status().message());
  };
  using Options = CudaBackendOptions;
  EXPECT_NE(message([](Options* o) { o->page_tokens = 8; }).find("page_tokens"), std::string::npos);
  EXPECT_NE(message([](Options* o) { o->kv_dtype = base::KvDtype::kF32; }).find("kv_dtype"),
            std::string::npos);
  EXPECT_NE(
      message([](Options* o) { o->activations = base::Activations::kInt8; }).find("activations"),
      std::string::npos);
  EXPECT_NE(message([](Options* o) { o->max_sequences = 33; }).find("max_running"),
            std::string::npos);
  testing::RandomModelOptions odd = Tiny();
  odd.head_dim = odd.rope_dims = 24;
  const testing::RandomModel other(odd);
  const auto refused = CudaBackend::Create(other.plan(), cuda::CudaBackendOptions{*device});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented) << refused.status();
  EXPECT_NE(refused.status().message().find("24"), absl::string_view::npos) << refused.status();
}

// All of what it says is free can be taken, and that is all but for what it holds.
TEST(CudaBackendOptionsTest, FreeMemoryIsWhatAnArenaMayTake) {
  simt::ResetDevice();
  const testing::RandomModel model(Tiny());
  const auto device = OpenDevice(0);
  ASSERT_TRUE(device.ok());
  const size_t before = simt::DeviceBytesInUse();
  const auto backend = CudaBackend::Create(model.plan(), Options(*device));
  ASSERT_TRUE(backend.ok()) << backend.status();
  const ops::BackendInfo info = (*backend)->info();
  const auto held = static_cast<int64_t>(simt::DeviceBytesInUse() - before);
  EXPECT_EQ(held, info.weight_bytes + info.workspace_bytes);
  EXPECT_GT(info.free_bytes, 0);
  EXPECT_TRUE((*backend)->AllocateArena(info.free_bytes / info.page_bytes).ok());
}

TEST(CudaBackendOptionsTest, OnABoardTheHostSaysWhatIsFree) {
  simt::ResetDevice();
  const testing::RandomModel model(Tiny());
  simt::DeviceModel shared;
  shared.integrated = true;
  simt::SetDevice(shared);
  const auto board = OpenDevice(0);
  ASSERT_TRUE(board.ok());
  const auto on_board = CudaBackend::Create(model.plan(), Options(*board));
  ASSERT_TRUE(on_board.ok()) << on_board.status();
  EXPECT_EQ((*on_board)->info().free_bytes, -1);
  simt::ResetDevice();
}

// Weights that do not fit and pages that do not fit are RESOURCE_EXHAUSTED, and a
// smaller arena may follow.
TEST(CudaBackendOptionsTest, TooLittleMemoryIsSaidInNumbers) {
  simt::ResetDevice();
  const testing::RandomModel model(Tiny());
  const auto device = OpenDevice(0);
  ASSERT_TRUE(device.ok());
  const auto backend = CudaBackend::Create(model.plan(), Options(*device));
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->AllocateArena(int64_t{1} << 40).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE((*backend)->AllocateArena(4).ok());
}

}  // namespace
}  // namespace tokend::cuda
