#ifndef TOKEND_CORE_CPU_FORWARD_WORKER_H_
#define TOKEND_CORE_CPU_FORWARD_WORKER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "core/cpu/attention.h"
#include "core/cpu/forward_pass.h"
#include "core/cpu/matmul_input.h"
#include "core/cpu/panel_work.h"

namespace tokend::cpu {

// With so few rows every thread prepares the inputs of a matmul for itself.
inline constexpr int64_t kPrivateRows = 2;

// Queries of one attention unit; their scores (96 KB) stay in the second-level
// cache beside a piece of keys and values (128 KB at head_dim 64).
inline constexpr int kTileQueries = 96;

// Single rows (decode) that make fewer units of work than this are cut into their
// pieces.
inline constexpr int64_t kSplitUnitsPerThread = 4;

static_assert(kPrivateRows * kPanelsPerChunk <= kRowsPerChunk, "PanelScratch is too small");

struct ForwardPass::Worker {
  AttentionWorkspace attention;
  std::array<MatmulInput, kInputs> inputs;  // kPrivateRows rows
  std::vector<float> row;                   // the widest row
  std::vector<float> scratch_memory;
  PanelScratch scratch;
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_FORWARD_WORKER_H_
