#include "tests/bench/device/cuda_device.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "cuda_kernels/backend/cuda_backend.h"
#include "cuda_kernels/backend/device_limits.h"
#include "cuda_kernels/runtime/device.h"

namespace tokend::bench {
namespace {

class CudaDevice final : public BenchDevice {
 public:
  CudaDevice(cuda::DeviceInfo info, const cuda::DeviceLimits& measured)
      : info_(std::move(info)), measured_(measured) {
    limits_ = {{"read_bandwidth", measured.read_bandwidth / 1e9, "GB/s"},
               {"graph_node", measured.graph_node_seconds * 1e6, "us"}};
    if (measured.dependent_node_seconds > 0) {
      limits_.push_back({"dependent_node", measured.dependent_node_seconds * 1e6, "us"});
    }
    if (measured.matmul_flops > 0) {
      limits_.push_back({"cublaslt_f16", measured.matmul_flops / 1e12, "TFLOP/s"});
    }
  }

  std::string name() const override { return info_.ToString(); }
  const std::vector<DeviceLimit>& limits() const override { return limits_; }
  double read_bandwidth() const override { return measured_.read_bandwidth; }
  double matmul_flops() const override { return measured_.matmul_flops; }

  absl::StatusOr<std::unique_ptr<ops::Backend>> NewBackend(
      const ops::ModelPlan& plan, const BenchBackendOptions& options) override {
    cuda::CudaBackendOptions own;
    own.device = info_;
    own.kv_dtype = options.kv_dtype;
    own.page_tokens = options.page_tokens;
    own.max_batch_tokens = options.max_batch_tokens;
    own.max_sequences = options.max_sequences;
    own.profile = options.profile;
    TOKEND_ASSIGN_OR_RETURN(auto backend, cuda::CudaBackend::Create(plan, own));
    return backend;
  }

  bool can_profile() const override { return true; }
  absl::StatusOr<std::vector<PartTime>> LastStep(const ops::Backend& backend) const override {
    TOKEND_ASSIGN_OR_RETURN(const auto parts,
                            static_cast<const cuda::CudaBackend&>(backend).DecodeParts());
    std::vector<PartTime> out;
    for (const cuda::PartTime& part : parts) {
      out.push_back({part.name, part.count, part.seconds});
    }
    return out;
  }

 private:
  const cuda::DeviceInfo info_;
  const cuda::DeviceLimits measured_;
  std::vector<DeviceLimit> limits_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BenchDevice>> OpenCudaDevice(int ordinal) {
  TOKEND_ASSIGN_OR_RETURN(cuda::DeviceInfo info, cuda::OpenDevice(ordinal));
  TOKEND_ASSIGN_OR_RETURN(const cuda::DeviceLimits limits, cuda::MeasureDeviceLimits(info, {}));
  return std::make_unique<CudaDevice>(std::move(info), limits);
}

}  // namespace tokend::bench
