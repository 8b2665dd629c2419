#ifndef TOKEND_TESTS_BENCH_DEVICE_BENCH_DEVICE_H_
#define TOKEND_TESTS_BENCH_DEVICE_BENCH_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/dtype.h"
#include "core/ops/backend.h"
#include "core/ops/plan.h"

namespace tokend::bench {

// What a device does at best, measured.
struct DeviceLimit {
  std::string name;
  double value;
  std::string unit;
};

struct PartTime {
  std::string name;    // a kind of kernels
  int64_t count = 0;   // in a step
  double seconds = 0;  // of a step
};

struct BenchBackendOptions {
  base::KvDtype kv_dtype = base::KvDtype::kF16;
  int page_tokens = 16;
  int64_t max_batch_tokens = 2048;
  int64_t max_sequences = 32;
  bool profile = false;  // times the parts of a step, which slows it
};

// A device that models run on.
class BenchDevice {
 public:
  virtual ~BenchDevice() = default;

  // "cpu" or "cuda:N". NOT_FOUND, FAILED_PRECONDITION: one line that says what is missing.
  static absl::StatusOr<std::unique_ptr<BenchDevice>> Open(absl::string_view name, int threads);

  virtual std::string name() const = 0;
  virtual const std::vector<DeviceLimit>& limits() const = 0;
  virtual double read_bandwidth() const = 0;  // bytes/s
  virtual double matmul_flops() const = 0;    // 1/s; 0: unknown
  virtual absl::StatusOr<std::unique_ptr<ops::Backend>> NewBackend(
      const ops::ModelPlan& plan, const BenchBackendOptions& options) = 0;
  // Its backends can tell the parts of a step.
  virtual bool can_profile() const = 0;
  // Of one of its backends with `profile`: the parts of its last decode step.
  virtual absl::StatusOr<std::vector<PartTime>> LastStep(const ops::Backend& backend) const = 0;
};

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_DEVICE_BENCH_DEVICE_H_
