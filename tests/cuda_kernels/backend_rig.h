#ifndef TOKEND_TESTS_CUDA_KERNELS_BACKEND_RIG_H_
#define TOKEND_TESTS_CUDA_KERNELS_BACKEND_RIG_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <utility>

#include "cuda_kernels/backend/cuda_backend.h"
#include "gtest/gtest.h"
#include "tests/support/backend_checks.h"
#include "tests/support/paged_runner.h"
#include "tests/support/random_model.h"

namespace tokend::cuda {

inline CudaBackendOptions Options() {
  const auto device = OpenDevice(0);
  EXPECT_TRUE(device.ok()) << device.status();
  CudaBackendOptions options;
  if (device.ok()) options.device = *device;
  options.max_batch_tokens = 512;
  options.max_sequences = 32;
  return options;
}

struct Rig : testing::BackendRig {
  Rig(const testing::RandomModel& model, const CudaBackendOptions& options, int64_t pages = 800) {
    auto created = CudaBackend::Create(model.plan(), options);
    EXPECT_TRUE(created.ok()) << created.status();
    cuda = created->get();
    backend = *std::move(created);
    page_tokens = options.page_tokens;
    EXPECT_TRUE(backend->AllocateArena(pages).ok());
    const int64_t page_bytes = cuda->info().page_bytes;
    // NaN as f16, and as an int8 scale.
    const auto poison = [this, page_bytes](base::PageId page) {
      EXPECT_EQ(cudaMemset(cuda->arena() + static_cast<int64_t>(page) * page_bytes, 0xff,
                           static_cast<size_t>(page_bytes)),
                cudaSuccess);
    };
    runner = std::make_unique<testing::PagedRunner>(
        backend.get(), static_cast<int>(model.plan().layers.size()), options.page_tokens, pages,
        /*seed=*/17, poison);
  }
  CudaBackend* cuda = nullptr;
};

inline testing::RandomModelOptions Small() {
  testing::RandomModelOptions options;
  options.layers = 2;
  options.width = 64;
  options.ffn_width = 96;
  options.heads = 4;
  return options;
}

}  // namespace tokend::cuda

#endif  // TOKEND_TESTS_CUDA_KERNELS_BACKEND_RIG_H_
