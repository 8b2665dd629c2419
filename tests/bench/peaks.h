#ifndef TOKEND_TESTS_BENCH_PEAKS_H_
#define TOKEND_TESTS_BENCH_PEAKS_H_

#include "core/cpu/cpu_features.h"

namespace tokend::bench {

// A loop of independent dot products or multiply-adds in registers.
struct PeakLoop {
  void (*run)() = nullptr;  // nullptr: none for that instruction set
  double operations = 0;    // of one call; multiply and add count as two
};

PeakLoop Int8Peak(cpu::Isa isa);
PeakLoop F32Peak(cpu::Isa isa);

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_PEAKS_H_
