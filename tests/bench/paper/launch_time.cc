#include "tests/bench/paper/launch_time.h"

#include <cuda_occupancy.h>

#include <algorithm>
#include <cmath>

namespace tokend::bench {
namespace {

// Of what a multiprocessor could issue.
constexpr double kIssueShare = 0.7;
// Of a load that L2 answers, by one that memory answers.
constexpr double kL2Latency = 0.4;

int ResidentBlocks(const PaperLaunch& launch, const Target& target) {
  cudaOccDeviceProp device;
  device.computeMajor = target.major;
  device.computeMinor = target.minor;
  device.maxThreadsPerBlock = 1024;
  device.maxThreadsPerMultiprocessor = target.threads;
  device.regsPerBlock = device.regsPerMultiprocessor = 65536;
  device.warpSize = 32;
  device.sharedMemPerBlock = 48 << 10;
  device.sharedMemPerMultiprocessor = static_cast<size_t>(target.shared_bytes);
  device.numSms = target.multiprocessors;
  device.sharedMemPerBlockOptin = static_cast<size_t>(target.shared_bytes_block);
  device.reservedSharedMemPerBlock = 1024;
  cudaOccFuncAttributes kernel;
  kernel.maxThreadsPerBlock = 1024;
  kernel.numRegs = launch.registers;
  kernel.sharedSizeBytes = 0;
  kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
  kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  kernel.maxDynamicSharedSizeBytes = static_cast<size_t>(launch.shared_bytes);
  const cudaOccDeviceState state;
  cudaOccResult result;
  if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, launch.threads,
                                              static_cast<size_t>(launch.shared_bytes)) !=
      CUDA_OCC_SUCCESS) {
    return 0;
  }
  return result.activeBlocksPerMultiprocessor;
}

}  // namespace

PaperTime TimeOf(const PaperLaunch& launch, const Target& target) {
  PaperTime time;
  time.blocks = ResidentBlocks(launch, target);
  if (time.blocks == 0) {
    time.seconds = INFINITY;
    time.bound = "does not fit";
    return time;
  }
  const double parts = target.multiprocessors;
  const auto grid = static_cast<double>(launch.grid);
  time.needed = target.bandwidth * target.latency / parts;
  const double resident = std::min<double>(time.blocks, std::ceil(grid / parts));
  time.inflight = resident * launch.issued_bytes;
  const double slots = parts * resident;
  time.wave = grid / (std::ceil(grid / slots) * slots);
  if (launch.evenness > 0 && grid <= slots) time.wave = launch.evenness;
  time.boundary =
      launch.dependent && target.dependent_launch ? DependentBoundary(target) : target.boundary;
  const struct {
    const char* bound;
    double seconds;
  } limits[] = {
      {"memory", launch.bytes == 0 ? 0
                                   : launch.bytes / (target.bandwidth * time.wave *
                                                     std::min(1.0, time.inflight / time.needed))},
      {"issue", launch.instructions / (parts * 4 * target.clock * kIssueShare)},
      {"integer", launch.integer_instructions / (parts * 2 * target.clock * kIssueShare)},
      {"latency", launch.round_trips * kL2Latency * target.latency},
      {"mma", launch.mma_flops / (parts * target.mma_flops * target.clock)},
  };
  for (const auto& limit : limits) {
    if (limit.seconds < time.seconds) continue;
    time.seconds = limit.seconds;
    time.bound = limit.bound;
  }
  return time;
}

}  // namespace tokend::bench
