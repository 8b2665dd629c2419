// Real backends under the engine's tests, with one small model.
#ifndef TOKEND_TESTS_CORE_ENGINE_DETERMINISM_BACKENDS_H_
#define TOKEND_TESTS_CORE_ENGINE_DETERMINISM_BACKENDS_H_

#include <cstring>
#include <memory>

#include "core/cpu/cpu_backend.h"
#include "gtest/gtest.h"
#include "tests/core/engine/harness.h"
#include "tests/support/random_model.h"
#ifdef TOKEND_TEST_CUDA
#include <cuda_runtime_api.h>

#include "cuda_kernels/backend/cuda_backend.h"
#include "cuda_kernels/runtime/device.h"
#endif

namespace tokend::testing {

// Random weights.
inline const RandomModel& SmallModel() {
  static const RandomModel* const model = [] {
    RandomModelOptions random;
    random.vocabulary_size = kVocabulary;
    random.layers = 3;
    random.weight_type = base::WeightType::kQ4_1;
    random.embedding_type = base::WeightType::kQ8_0;
    return new RandomModel(random);
  }();
  return *model;
}

// The small model on the CPU; free pages are all NaN.
inline void UseCpu(base::Activations activations, base::KvDtype kv_dtype, HarnessOptions* options) {
  cpu::CpuBackendOptions cpu;
  cpu.threads = 2;
  cpu.activations = activations;
  cpu.kv_dtype = kv_dtype;
  cpu.max_batch_tokens = options->engine.max_batch_tokens;
  const std::shared_ptr<cpu::CpuBackend> backend =
      cpu::CpuBackend::Create(SmallModel().plan(), cpu).value();
  options->real_backend = backend;
  options->on_page_freed = [backend](base::PageId page) {
    cpu::KvArena* arena = backend->arena();
    const int64_t half = arena->layout().half_page_bytes();
    std::memset(arena->keys() + static_cast<int64_t>(page) * half, 0xff, half);
    std::memset(arena->values() + static_cast<int64_t>(page) * half, 0xff, half);
  };
}

#ifdef TOKEND_TEST_CUDA
// The same on a device.
inline void UseCuda(base::KvDtype kv_dtype, HarnessOptions* options) {
  cuda::CudaBackendOptions cuda;
  cuda.device = cuda::OpenDevice(0).value();
  cuda.kv_dtype = kv_dtype;
  cuda.max_batch_tokens = options->engine.max_batch_tokens;
  cuda.max_sequences = options->engine.max_running;
  const std::shared_ptr<cuda::CudaBackend> backend =
      cuda::CudaBackend::Create(SmallModel().plan(), cuda).value();
  options->real_backend = backend;
  options->on_page_freed = [backend](base::PageId page) {
    const int64_t bytes = backend->info().page_bytes;
    EXPECT_EQ(cudaMemset(backend->arena() + static_cast<int64_t>(page) * bytes, 0xff,
                         static_cast<size_t>(bytes)),
              cudaSuccess);
  };
}
#else
inline void UseCuda(base::KvDtype, HarnessOptions*) {}
#endif

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_CORE_ENGINE_DETERMINISM_BACKENDS_H_
