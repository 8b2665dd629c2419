#ifndef TOKEND_CORE_CPU_FORWARD_WORKER_H_
#define TOKEND_CORE_CPU_FORWARD_WORKER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "core/cpu/attention.h"
#include "core/cpu/forward_pass.h"
#include "core/cpu/matmul_input.h"

namespace tokend::cpu {

// Rows of a chunk of a matmul: their inputs stay in the second-level cache while
// panels pass by.
inline constexpr int64_t kRowsPerChunk = 128;

// With so few rows every thread prepares the inputs of a matmul for itself,
// which costs less than one more phase.
inline constexpr int64_t kPrivateRows = 2;

// Queries of one attention unit; their scores (96 KB) stay in the second-level
// cache beside a piece of keys and values (128 KB at head_dim 64).
inline constexpr int kTileQueries = 96;

// Single rows (decode) that make fewer units of work than this are cut into their
// pieces.
inline constexpr int64_t kSplitUnitsPerThread = 4;

struct ForwardPass::Worker {
  AttentionWorkspace attention;
  std::array<MatmulInput, kInputs> inputs;  // kPrivateRows rows
  int64_t prepared_phase = -1;              // whose inputs those are
  std::vector<float> row;                   // the widest row
  std::vector<float> gate, up;              // [kRowsPerChunk][kPanelOutputs]
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_FORWARD_WORKER_H_
