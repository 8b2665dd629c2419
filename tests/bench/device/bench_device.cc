#include "tests/bench/device/bench_device.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/cpu/cpu_backend.h"
#include "core/cpu/cpu_features.h"
#include "core/cpu/thread_pool.h"
#include "tests/bench/bench.h"
#ifdef TOKEND_BENCH_CUDA
#include "tests/bench/device/cuda_device.h"
#endif

namespace tokend::bench {
namespace {

class CpuDevice final : public BenchDevice {
 public:
  static absl::StatusOr<std::unique_ptr<BenchDevice>> Open(int threads) {
    auto device = std::make_unique<CpuDevice>();
    device->threads_ = threads;
    cpu::ThreadPoolOptions options;
    options.threads = threads;
    TOKEND_ASSIGN_OR_RETURN(const auto pool, cpu::ThreadPool::Create(options));
    TOKEND_ASSIGN_OR_RETURN(device->bandwidth_, ReadBandwidth(pool.get(), int64_t{512} << 20));
    TOKEND_ASSIGN_OR_RETURN(const cpu::Isa isa, cpu::ChooseIsa(""));
    device->flops_ = Int8PeakOpsPerSecond(pool.get(), isa);
    device->limits_ = {{"read_bandwidth", device->bandwidth_ / 1e9, "GB/s"},
                       {"int8_peak", device->flops_ / 1e12, "TOP/s"}};
    return device;
  }

  std::string name() const override { return absl::StrCat("cpu, ", threads_, " threads"); }
  const std::vector<DeviceLimit>& limits() const override { return limits_; }
  double read_bandwidth() const override { return bandwidth_; }
  double matmul_flops() const override { return flops_; }

  absl::StatusOr<std::unique_ptr<ops::Backend>> NewBackend(
      const ops::ModelPlan& plan, const BenchBackendOptions& options) override {
    cpu::CpuBackendOptions own;
    own.threads = threads_;
    own.kv_dtype = options.kv_dtype;
    own.page_tokens = options.page_tokens;
    own.max_batch_tokens = options.max_batch_tokens;
    own.max_sequences = options.max_sequences;
    TOKEND_ASSIGN_OR_RETURN(auto backend, cpu::CpuBackend::Create(plan, own));
    return backend;
  }

  // `./dev bench decode` shows where a step's time goes on the CPU.
  bool can_profile() const override { return false; }
  absl::StatusOr<std::vector<PartTime>> LastStep(const ops::Backend&) const override {
    return std::vector<PartTime>();
  }

 private:
  int threads_ = 1;
  double bandwidth_ = 0;
  double flops_ = 0;
  std::vector<DeviceLimit> limits_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BenchDevice>> BenchDevice::Open(absl::string_view name,
                                                               int threads) {
  if (name == "cpu") return CpuDevice::Open(threads);
#ifdef TOKEND_BENCH_CUDA
  int ordinal = 0;
  if (absl::ConsumePrefix(&name, "cuda:") && absl::SimpleAtoi(name, &ordinal)) {
    return OpenCudaDevice(ordinal);
  }
#endif
  return absl::InvalidArgumentError(absl::StrCat("no device '", name, "'; known: cpu, cuda:N"));
}

}  // namespace tokend::bench
