#ifndef TOKEND_TESTS_BENCH_DEVICE_CUDA_DEVICE_H_
#define TOKEND_TESTS_BENCH_DEVICE_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tests/bench/device/bench_device.h"

namespace tokend::bench {

// With its limits measured, which takes a second. Errors: see OpenDevice.
absl::StatusOr<std::unique_ptr<BenchDevice>> OpenCudaDevice(int ordinal);

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_DEVICE_CUDA_DEVICE_H_
