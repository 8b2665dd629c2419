#ifndef TOKEND_CUDA_KERNELS_BACKEND_DEVICE_MODEL_H_
#define TOKEND_CUDA_KERNELS_BACKEND_DEVICE_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ops/plan.h"
#include "cuda_kernels/kernels/matmul.h"
#include "cuda_kernels/kernels/row_norm.h"
#include "cuda_kernels/runtime/buffer.h"
#include "cuda_kernels/runtime/stream.h"

namespace tokend::cuda {

// ops::Linear on the device; weight.data nullptr: absent.
struct DeviceLinear {
  PackedMatrix weight;
  const float* bias = nullptr;     // [outputs]; gated: of the gate
  const float* up_bias = nullptr;  // [outputs]; gated alone
};

// ops::LayerPlan on the device. A norm without weight is absent.
struct DeviceLayer {
  RowNorm attention_norm;
  DeviceLinear query;
  DeviceLinear key;
  DeviceLinear value;
  RowNorm query_norm;
  RowNorm key_norm;
  DeviceLinear attention_output;
  RowNorm post_attention_norm;
  RowNorm ffn_norm;
  DeviceLinear up;  // gated where the layer has a gate
  DeviceLinear down;
  RowNorm post_ffn_norm;
};

// A model's weights on a device, in one piece of memory. Immutable.
class DeviceModel {
 public:
  // `pair`: mode f32 (see packed_weights.h). Reads all of the plan's data; `progress`
  // may be empty. Errors: UNIMPLEMENTED for a recipe that the kernels do not run, by
  // name; FAILED_PRECONDITION for weights that do not fit f16; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<DeviceModel>> Create(
      const ops::ModelPlan& plan, bool pair, const Stream& stream,
      const std::function<void(int64_t done, int64_t total)>& progress);

  // The same at addresses where nothing is: for launches that are only noted.
  static absl::StatusOr<std::unique_ptr<DeviceModel>> LayOut(const ops::ModelPlan& plan, bool pair);

  // Shapes, constants and ropes; its data is gone.
  const ops::ModelPlan& plan() const { return plan_; }
  const std::vector<DeviceLayer>& layers() const { return layers_; }
  const PackedMatrix& embedding() const { return embedding_; }
  const PackedMatrix& position_embedding() const { return position_embedding_; }
  const RowNorm& output_norm() const { return output_norm_; }
  const DeviceLinear& output() const { return output_; }
  // [dims / 2] of each rope.
  const std::vector<const double*>& inverse_frequencies() const { return inverse_frequencies_; }
  int64_t weight_bytes() const { return memory_.bytes(); }

 private:
  class Loader;
  explicit DeviceModel(const ops::ModelPlan& plan) : plan_(plan) {}
  absl::Status Load(Loader* loader);
  absl::Status LoadLayer(Loader* loader, size_t index);

  ops::ModelPlan plan_;
  DeviceBuffer memory_;
  std::vector<DeviceLayer> layers_;
  PackedMatrix embedding_;
  PackedMatrix position_embedding_;
  RowNorm output_norm_;
  DeviceLinear output_;
  std::vector<const double*> inverse_frequencies_;
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_BACKEND_DEVICE_MODEL_H_
