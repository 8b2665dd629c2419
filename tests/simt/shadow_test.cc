#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/simt/control.h"
#include "tests/simt/shadow_kernels.h"

namespace tokend::simt {
namespace {

// The first finding, "" where there is none.
std::string Finding(Bug bug, const Schedule& schedule) {
  ResetDevice();
  BuggyParams params;
  EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&params.data), 64 * sizeof(float)), cudaSuccess);
  float* input = nullptr;
  EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&input), 64 * sizeof(float)), cudaSuccess);
  params.input = input;
  EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&params.counter), sizeof(unsigned)), cudaSuccess);
  EXPECT_EQ(cudaMemset(params.data, 0, 64 * sizeof(float)), cudaSuccess);
  EXPECT_EQ(cudaMemset(params.counter, 0, sizeof(unsigned)), cudaSuccess);
  SetSchedule(schedule);
  params.bug = bug;
  const bool dependent = bug == Bug::kReadBeforeWait || bug == Bug::kCopyBeforeWait;
  absl::Status status = dependent ? RunDependent(params, nullptr) : RunBuggy(params, nullptr);
  if (bug == Bug::kNone && status.ok()) status = RunBuggy(params, nullptr);
  if (bug == Bug::kNone && status.ok()) status = RunDependent(params, nullptr);
  const std::vector<std::string> findings = TakeFindings();
  EXPECT_EQ(status.ok(), findings.empty());
  ResetDevice();
  SetSchedule({});
  EXPECT_EQ(cudaFree(params.data), cudaSuccess);
  EXPECT_EQ(cudaFree(input), cudaSuccess);
  EXPECT_EQ(cudaFree(params.counter), cudaSuccess);
  return findings.empty() ? "" : findings.front();
}

std::vector<Schedule> Schedules() {
  return {{Order::kAscending, Order::kAscending, false},
          {Order::kAscending, Order::kDescending, true},
          {Order::kDescending, Order::kAscending, true},
          {Order::kDescending, Order::kDescending, false},
          {Order::kInterleaved, Order::kInterleaved, true}};
}

TEST(Shadow, FindsNothingInRightKernels) {
  for (const Schedule& schedule : Schedules()) EXPECT_EQ(Finding(Bug::kNone, schedule), "");
}

TEST(Shadow, FindsEachBugUnderEverySchedule) {
  const std::vector<std::pair<Bug, std::string>> bugs = {
      {Bug::kMissingBarrier, "nobody wrote|not ordered after"},
      {Bug::kMissingBarrierOnReuse, "not ordered after"},
      {Bug::kMissingSyncwarp, "not ordered after"},
      {Bug::kShuffleAsBarrier, "not ordered after"},
      {Bug::kPartialSyncwarp, "not ordered after"},
      {Bug::kUnwrittenShared, "reads shared memory that nobody wrote"},
      {Bug::kUnwrittenVector, "reads shared memory that nobody wrote"},
      {Bug::kOutsideSharedArray, "accesses shared memory outside of what it asked for"},
      {Bug::kOutsideAllocation, "accesses device memory outside of every allocation"},
      {Bug::kCopyNotWaited, "accesses what an asynchronous copy may still write"},
      {Bug::kCopyNotPublished, "may still write|not ordered after|nobody wrote"},
      {Bug::kCopyOverRead, "not ordered after|may still write"},
      {Bug::kGlobalRace, "writes what is not ordered after a write of thread"},
      {Bug::kBlocksConflict, "of block"},
      {Bug::kNoFence, "reads what is not ordered after a write of block"},
      {Bug::kNoBarrierBeforeAtomic, "reads what is not ordered after a write of block"},
      {Bug::kReadBeforeWait, "touches device memory before WaitForPreviousKernel"},
      {Bug::kCopyBeforeWait, "copies what a kernel wrote before WaitForPreviousKernel"},
  };
  for (const auto& [bug, expected] : bugs) {
    for (const Schedule& schedule : Schedules()) {
      EXPECT_THAT(Finding(bug, schedule), testing::ContainsRegex(expected))
          << "bug " << static_cast<int>(bug);
    }
  }
}

TEST(Shadow, NamesTheLine) {
  EXPECT_THAT(Finding(Bug::kGlobalRace, {}), testing::HasSubstr("at shadow_kernels.cc:"));
}

}  // namespace
}  // namespace tokend::simt
