#ifndef TOKEND_CUDA_KERNELS_BACKEND_FORWARD_PASS_H_
#define TOKEND_CUDA_KERNELS_BACKEND_FORWARD_PASS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "cuda_kernels/backend/device_model.h"
#include "cuda_kernels/backend/workspace.h"
#include "cuda_kernels/kernels/attention.h"
#include "cuda_kernels/kernels/kv_layout.h"
#include "cuda_kernels/kernels/matmul.h"
#include "cuda_kernels/kernels/step_tables.h"
#include "cuda_kernels/runtime/device.h"
#include "cuda_kernels/runtime/step_timer.h"
#include "cuda_kernels/runtime/stream.h"

namespace tokend::cuda {

// How much of a step there is; what a graph is captured for.
struct PassShape {
  int rows = 0;
  bool decode = false;      // it may have sequences of a single row
  int append_tiles = 0;     // of sequences of several rows
  int attention_tiles = 0;  // of the same
};

// A model's kernels in order: embedding, blocks, logits. Starts them on a stream and
// does not wait. What they read of a step are its tables on the device (step_tables.h).
class ForwardPass {
 public:
  struct Parts {
    const DeviceModel* model = nullptr;
    const Workspace* workspace = nullptr;
    const Stream* stream = nullptr;
    DeviceInfo device;
    KvLayout kv;
    StepTables step;           // those of workspace->step
    int max_angle_rows = 0;    // of any step
    int max_decode_items = 0;  // of one layer in any step
    unsigned char* arena = nullptr;
    StepTimer* timer = nullptr;  // of the pass's parts; nullptr: none
  };
  // What the parts point to outlives it.
  explicit ForwardPass(const Parts& parts) : parts_(parts) {}

  // Leaves x behind the last block in the workspace, and KV in the arena.
  absl::Status RunBlocks(const PassShape& shape) const;

  // Logits of `count` of the step's logit rows from the `first`-th on, to
  // workspace->logits [count, vocabulary_size]. `all_rows`: they are the step's rows.
  absl::Status RunHead(int first, int count, bool all_rows) const;

  // Tokens of the `count` rows of logits there, by workspace->draws, to
  // workspace->tokens.
  absl::Status RunDraws(int count) const;

 private:
  // A block's output that its post norm has yet to add to x.
  struct Pending {
    const float* y = nullptr;  // nullptr: none
    RowNorm post;
    float scale = 1;
  };

  absl::Status RunStart(const PassShape& shape) const;
  absl::Status RunAttention(size_t index, const PassShape& shape, Pending* pending) const;
  absl::Status Attend(size_t index, const PassShape& shape) const;
  absl::Status RunFeedForward(const DeviceLayer& layer, const PassShape& shape,
                              Pending* pending) const;
  // x += pending, and norm(x) as a matmul's input.
  absl::StatusOr<MatmulInput> Normed(const RowNorm& norm, int rows, bool own_kernel,
                                     Pending* pending) const;
  // Adds `linear` of `input` to x, behind `post` if there is one.
  absl::Status AddToStream(const DeviceLinear& linear, const HalfRows& input, const RowNorm& post,
                           int rows, Pending* pending) const;
  absl::Status Multiply(const Matmul& matmul) const;
  // What was started since the last mark is a part of the step.
  absl::Status Mark(const char* name) const {
    return parts_.timer == nullptr ? absl::OkStatus() : parts_.timer->Mark(name, *parts_.stream);
  }
  bool pair() const { return parts_.workspace->normed.lo != nullptr; }
  const ops::ModelPlan& plan() const { return parts_.model->plan(); }

  const Parts parts_;
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_BACKEND_FORWARD_PASS_H_
