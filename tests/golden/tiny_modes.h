// The modes of the backend that a test is compiled for, with what each may deviate.
#ifndef TOKEND_TESTS_GOLDEN_TINY_MODES_H_
#define TOKEND_TESTS_GOLDEN_TINY_MODES_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ops/backend.h"
#include "core/ops/plan.h"
#include "tests/golden/tiny_models.h"
#ifdef TOKEND_TEST_CUDA
#include "cuda_kernels/backend/cuda_backend.h"
#include "cuda_kernels/runtime/device.h"
#else
#include "core/cpu/cpu_backend.h"
#endif

namespace tokend::testing {

inline constexpr int kTinyPageTokens = 16;

struct TinyMode {
  std::string name;
  GoldenTolerance tolerance;
  std::function<absl::StatusOr<std::unique_ptr<ops::Backend>>(const ops::ModelPlan&)> create;
};

#ifdef TOKEND_TEST_CUDA

// Where a device is stood in for, the longest prompts take ten times the others' time.
inline bool TakesCase(const GoldenCase& c) {
  constexpr size_t kStandInTokens = 40;
  const bool stand_in = cuda::OpenDevice(0).value().name.find("SIMT") != std::string::npos;
  return !stand_in || c.ids.size() <= kStandInTokens;
}

inline std::vector<TinyMode> TinyModes() {
  const auto create = [](base::Activations activations) {
    return [activations](const ops::ModelPlan& plan) {
      cuda::CudaBackendOptions options;
      options.device = cuda::OpenDevice(0).value();
      options.activations = activations;
      options.page_tokens = kTinyPageTokens;
      options.max_batch_tokens = 64;
      options.max_sequences = 2;
      return cuda::CreateCudaBackend(plan, options);
    };
  };
  return {{"f32", {1e-2, 2e-3, false}, create(base::Activations::kF32)},
          {"f16", {2e-2, 1e-2, true, true}, create(base::Activations::kF16)}};
}

#else

inline bool TakesCase(const GoldenCase&) { return true; }

// Rounding K and V to f16 costs a model of two layers up to 5e-3 in one logit of 384.
inline std::vector<TinyMode> TinyModes() {
  const auto create = [](base::KvDtype kv_dtype) {
    return [kv_dtype](const ops::ModelPlan& plan) {
      return cpu::CpuBackend::Create(plan, {.threads = 2,
                                            .activations = base::Activations::kF32,
                                            .kv_dtype = kv_dtype,
                                            .page_tokens = kTinyPageTokens});
    };
  };
  return {{"kv_f32", {1e-4, 1e-4, false}, create(base::KvDtype::kF32)},
          {"kv_f16", {1e-2, 2e-3, false, true}, create(base::KvDtype::kF16)}};
}

#endif

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_GOLDEN_TINY_MODES_H_
