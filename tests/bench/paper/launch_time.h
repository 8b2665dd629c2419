// The time of one kernel launch, on paper.
#ifndef TOKEND_TESTS_BENCH_PAPER_LAUNCH_TIME_H_
#define TOKEND_TESTS_BENCH_PAPER_LAUNCH_TIME_H_

#include <cstdint>
#include <string>

#include "tests/bench/paper/target.h"

namespace tokend::bench {

struct PaperLaunch {
  std::string name;  // of the kernel
  int64_t grid = 1;  // blocks
  int threads = 32;  // of a block
  int64_t shared_bytes = 0;
  int registers = 0;  // of a thread
  bool dependent = false;
  double bytes = 0;         // that it must read from memory
  double issued_bytes = 0;  // of them, what a block asks for before it first waits
  // Of a warp, over all warps; integer ones are among them.
  double instructions = 0;
  double integer_instructions = 0;
  double mma_flops = 0;
  // Where blocks have unequal work: the mean of the multiprocessors' over the most of one.
  // 0: blocks are alike.
  double evenness = 0;
  // Loads through L2 that wait for each other, from the dependency wait to the last.
  double round_trips = 0;
};

struct PaperTime {
  int blocks = 0;       // resident on a multiprocessor; 0: it cannot run
  double needed = 0;    // bytes in flight on a multiprocessor that fill the bandwidth
  double inflight = 0;  // bytes in flight there
  double wave = 0;      // share of the slots that the waves of blocks fill
  double seconds = 0;   // of the kernel itself
  double boundary = 0;  // before the next kernel, s
  const char* bound = "";
};

// needed = bandwidth x latency / multiprocessors; with resident = min(blocks, ceil(grid /
// multiprocessors)), inflight = resident x issued_bytes and wave = grid / (ceil(grid /
// slots) x slots), slots = multiprocessors x resident; evenness where that is known and all
// blocks run at once. seconds is the most of
//   bytes / (bandwidth x wave x min(1, inflight / needed)),
//   instructions / (multiprocessors x 4 x clock x 0.7),
//   integer_instructions / (multiprocessors x 2 x clock x 0.7), mma_flops at its rate, and
//   round_trips x 0.4 latency.
PaperTime TimeOf(const PaperLaunch& launch, const Target& target);

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_PAPER_LAUNCH_TIME_H_
