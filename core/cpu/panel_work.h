#ifndef TOKEND_CORE_CPU_PANEL_WORK_H_
#define TOKEND_CORE_CPU_PANEL_WORK_H_

#include <cstdint>

#include "core/cpu/cpu_features.h"
#include "core/cpu/matmul_input.h"
#include "core/cpu/packed_model.h"
#include "core/cpu/vector_kernels.h"

namespace tokend::cpu {

// Rows of a chunk of a matmul: their inputs stay in the second-level cache while
// panels pass by.
inline constexpr int64_t kRowsPerChunk = 128;

// Panels of a chunk, at most.
inline constexpr int64_t kPanelsPerChunk = 8;

struct MatmulJob {
  const PackedLinear* linear = nullptr;
  float* out = nullptr;  // [rows][stride]
  int64_t stride = 0;
  bool accumulate = false;  // out += instead of out =
};

// Rows and panels of a chunk of a PanelWork.
struct PanelRange {
  int64_t row_begin, row_end;
  int64_t panel_begin, panel_end;  // of all jobs' panels, one job after the other
};

// One worker's memory for a chunk.
struct PanelScratch {
  float* result;  // [kRowsPerChunk][kPanelOutputs], or few rows of kPanelsPerChunk panels
  float* other;   // likewise
};

// Matmuls that share their input and are cut into chunks together. Trivially
// copyable.
struct PanelWork {
  Isa isa = Isa::kPlain;
  // jobs[0] and jobs[1] are gate and up, and gate(jobs[0], jobs[1]) goes to jobs[0].out;
  // their panels are counted once.
  GateFunction gate = nullptr;
  // Of the one job; nothing accumulates.
  ActivateFunction activate = nullptr;
  int count = 0;
  MatmulJob jobs[3];

  int64_t panels() const;
  int64_t panel_bytes() const;  // that one panel reads, on average

  // Computes a chunk to where the jobs want it.
  void Run(const MatmulInput& input, const PanelRange& range, const PanelScratch& scratch) const;

  // The same in two steps. Compute leaves the chunk in scratch.result, with no more
  // rows than that holds; Publish moves it.
  void Compute(const MatmulInput& input, const PanelRange& range,
               const PanelScratch& scratch) const;
  void Publish(const PanelRange& range, const PanelScratch& scratch) const;

 private:
  bool activated() const { return gate != nullptr || activate != nullptr; }
  void ComputeActivated(const MatmulInput& input, const PanelRange& range,
                        const PanelScratch& scratch, float* out, int64_t stride) const;
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_PANEL_WORK_H_
