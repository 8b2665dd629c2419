#ifndef TOKEND_CORE_CPU_ROPE_ANGLES_H_
#define TOKEND_CORE_CPU_ROPE_ANGLES_H_

#include <cstdint>
#include <vector>

#include "core/cpu/vector_kernels.h"
#include "core/ops/plan.h"
#include "core/ops/step.h"

namespace tokend::cpu {

// One rope's angles, magnitude included, of a step's rows and of the positions from
// which they see sinks. Of a rope of no dimensions it has none.
class RopeAngles {
 public:
  RopeAngles(const ops::Rope& rope, int64_t max_rows);

  // Forgets the last step. Finds the sink positions of the new one.
  void StartStep(const ops::StepBatch& batch);
  // Row `row` of the step stands at `position`. Rows may be set from different
  // threads.
  void SetRow(int64_t row, int64_t position);

  RopeAngleRow Row(int64_t row) const { return View(rows_.data() + row * stride_); }
  // From which the rows at `position` see the sinks of `mask`; that of an own row
  // (`row`) where the sinks have not left the window.
  RopeAngleRow SinkRow(int64_t row, int64_t position, const ops::AttentionMask& mask) const;

 private:
  struct Sink {
    int64_t position;
    std::vector<float> angles;  // [stride]
  };

  void Fill(int64_t position, float* out) const;
  // Of this step; nullptr: it has none there.
  const Sink* FindSink(int64_t position) const;
  RopeAngleRow View(const float* at) const {
    return {at, at + rope_.dims, rope_.dims, rope_.pairing == ops::RopePairing::kHalves};
  }

  const ops::Rope& rope_;
  const int64_t stride_;     // cos and sin of each dimension
  std::vector<float> rows_;  // [max_rows][2][dims]
  std::vector<Sink> sinks_;  // one per distinct sink position, then spare ones
  size_t sink_count_ = 0;
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_ROPE_ANGLES_H_
