// How the stand-in's own tests run a kernel and read what was found.
#ifndef TOKEND_TESTS_SIMT_RUN_KERNEL_H_
#define TOKEND_TESTS_SIMT_RUN_KERNEL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda_kernels/device/launch.cuh"
#include "tests/simt/control.h"

namespace tokend::simt {

class SimtTest : public testing::Test {
 protected:
  void SetUp() override {
    ResetDevice();
    schedule_ = CurrentSchedule();
  }
  void TearDown() override {
    ResetDevice();
    DropBarriers({});
    SetSchedule(schedule_);
  }

 private:
  Schedule schedule_;
};

// The finding of a launch, "" where there is none.
template <typename Params>
std::string RunKernel(void (*kernel)(Params), const Params& params, unsigned threads = 64,
                      unsigned blocks = 1, size_t shared_bytes = 1024) {
  cuda::LaunchDims dims;
  dims.grid_x = blocks;
  dims.threads = threads;
  dims.shared_bytes = shared_bytes;
  const absl::Status status = cuda::Launch("Planted", kernel, dims, params, nullptr);
  const std::vector<std::string> findings = TakeFindings();
  EXPECT_EQ(status.ok(), findings.empty()) << status;
  const std::string finding = findings.empty() ? "" : findings.front();
  ResetDevice();
  return finding;
}

}  // namespace tokend::simt

#endif  // TOKEND_TESTS_SIMT_RUN_KERNEL_H_
