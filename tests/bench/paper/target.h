// Parts that decode is timed on, on paper.
#ifndef TOKEND_TESTS_BENCH_PAPER_TARGET_H_
#define TOKEND_TESTS_BENCH_PAPER_TARGET_H_

#include "absl/types/span.h"

namespace tokend::bench {

struct Target {
  const char* name;
  int major;  // compute capability
  int minor;
  double bandwidth;  // of reads, bytes/s
  int multiprocessors;
  double clock;            // Hz
  double latency;          // from an issued load to its data, s
  int mma_flops;           // of mma.sync, f16 with f32 sums, a multiprocessor and clock
  double boundary;         // between two kernels of a graph, s
  bool dependent_launch;   // code for it is compiled with PTX of 9.0 or later
  int threads;             // resident, a multiprocessor
  int shared_bytes;        // a multiprocessor
  int shared_bytes_block;  // of a block, opted in
};

// RTX 3060, Orin AGX, H200, Thor, RTX 5090.
absl::Span<const Target> Targets();
// The one whose verdicts count.
const Target& H200();

// What is left of a boundary where the next kernel's weights are in flight before the
// kernel before it has ended: the latency of the first loads is hidden.
double DependentBoundary(const Target& target);

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_PAPER_TARGET_H_
