#include "tests/bench/paper/target.h"

#include <algorithm>

namespace tokend::bench {
namespace {

// Bandwidths, clocks and multiprocessors as published (H200: as measured); latencies
// are assumed. A boundary is 1.3 us on an H100 as published, and is scaled by the
// clock elsewhere. Tensor rates a multiprocessor and clock: GeForce 512 flop with f32
// sums; Orin that of an A100, 2,048; Hopper's 4,096 are reached by wgmma, mma.sync
// gets 63 %; Thor's mma.sync is taken for Orin's.
constexpr Target kTargets[] = {
    {.name = "RTX 3060",
     .major = 8,
     .minor = 6,
     .bandwidth = 360e9,
     .multiprocessors = 28,
     .clock = 1.78e9,
     .latency = 0.6e-6,
     .mma_flops = 512,
     .boundary = 1.3e-6,
     .dependent_launch = false,
     .threads = 1536,
     .shared_bytes = 100 << 10,
     .shared_bytes_block = 99 << 10},
    {.name = "Orin AGX",
     .major = 8,
     .minor = 7,
     .bandwidth = 205e9,
     .multiprocessors = 16,
     .clock = 1.3e9,
     .latency = 0.7e-6,
     .mma_flops = 2048,
     .boundary = 1.8e-6,
     .dependent_launch = false,
     .threads = 1536,
     .shared_bytes = 164 << 10,
     .shared_bytes_block = 163 << 10},
    {.name = "H200",
     .major = 9,
     .minor = 0,
     .bandwidth = 4300e9,
     .multiprocessors = 132,
     .clock = 1.755e9,
     .latency = 0.8e-6,
     .mma_flops = 2580,
     .boundary = 1.3e-6,
     .dependent_launch = true,
     .threads = 2048,
     .shared_bytes = 228 << 10,
     .shared_bytes_block = 227 << 10},
    {.name = "Thor",
     .major = 11,
     .minor = 0,
     .bandwidth = 273e9,
     .multiprocessors = 20,
     .clock = 1.57e9,
     .latency = 0.7e-6,
     .mma_flops = 2048,
     .boundary = 1.5e-6,
     .dependent_launch = true,
     .threads = 1536,
     .shared_bytes = 228 << 10,
     .shared_bytes_block = 227 << 10},
    {.name = "RTX 5090",
     .major = 12,
     .minor = 0,
     .bandwidth = 1790e9,
     .multiprocessors = 170,
     .clock = 2.4e9,
     .latency = 0.7e-6,
     .mma_flops = 512,
     .boundary = 1.3e-6,
     .dependent_launch = true,
     .threads = 1536,
     .shared_bytes = 100 << 10,
     .shared_bytes_block = 99 << 10},
};

}  // namespace

absl::Span<const Target> Targets() { return kTargets; }
const Target& H200() { return kTargets[2]; }

double DependentBoundary(const Target& target) {
  return std::max(0.0, target.boundary - target.latency);
}

}  // namespace tokend::bench
