#ifndef TOKEND_CUDA_KERNELS_BACKEND_WORKSPACE_H_
#define TOKEND_CUDA_KERNELS_BACKEND_WORKSPACE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ops/plan.h"
#include "cuda_kernels/kernels/attention.h"
#include "cuda_kernels/kernels/half_rows.h"
#include "cuda_kernels/kernels/kv_layout.h"
#include "cuda_kernels/kernels/sampling.h"
#include "cuda_kernels/runtime/buffer.h"

namespace tokend::cuda {

struct WorkspaceShape {
  int rows = 0;        // of a step
  int sequences = 0;   // of a step
  int logit_rows = 0;  // computed at once
  int angle_rows = 0;
  int decode_items = 0;
  int64_t step_bytes = 0;  // of the step's tables
  KvLayout kv;
  bool pair = false;  // activations are pairs of f16
};

// Device memory of a step, in one piece, at addresses that stay.
class Workspace {
 public:
  static absl::StatusOr<std::unique_ptr<Workspace>> Create(const ops::ModelPlan& plan,
                                                           const WorkspaceShape& shape);

  int64_t bytes() const { return memory_.bytes(); }
  // All of it, zeroed before the first step.
  std::byte* data() const { return memory_.data(); }

  std::byte* step = nullptr;     // [step_bytes]
  float* x = nullptr;            // [rows, width], the residual stream
  float* qkv = nullptr;          // [rows, qkv_width]
  float* y = nullptr;            // [rows, width], before a post norm
  HalfRows normed;               // [rows, width]
  HalfRows attended;             // [rows, heads * head_dim]
  HalfRows activated;            // [rows, ffn_width]
  float* logits = nullptr;       // [logit_rows, vocabulary_size]
  SamplingRow* draws = nullptr;  // [logit_rows]
  int32_t* tokens = nullptr;     // [logit_rows], drawn; the next step may start with them
  unsigned char* sampling = nullptr;
  std::vector<RopeTable> ropes;  // by ModelPlan::ropes
  unsigned char* attention = nullptr;
  int64_t attention_bytes = 0;
  unsigned* saturations = nullptr;  // [1]

 private:
  class Carver;
  Workspace() = default;
  void Carve(const ops::ModelPlan& plan, const WorkspaceShape& shape, Carver* carver);

  DeviceBuffer memory_;
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_BACKEND_WORKSPACE_H_
