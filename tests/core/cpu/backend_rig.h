#ifndef TOKEND_TESTS_CORE_CPU_BACKEND_RIG_H_
#define TOKEND_TESTS_CORE_CPU_BACKEND_RIG_H_

#include <cstring>
#include <memory>

#include "core/cpu/cpu_backend.h"
#include "gtest/gtest.h"
#include "tests/support/backend_checks.h"
#include "tests/support/paged_runner.h"
#include "tests/support/random_model.h"

namespace tokend::cpu {

inline constexpr int64_t kPages = 800;

struct Rig : testing::BackendRig {
  Rig(const testing::RandomModel& model, CpuBackendOptions options, int64_t pages = kPages) {
    auto created = CpuBackend::Create(model.plan(), options);
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    arena = (*created)->arena();
    backend = *std::move(created);
    page_tokens = options.page_tokens;
    EXPECT_TRUE(backend->AllocateArena(pages).ok());
    runner = std::make_unique<testing::PagedRunner>(
        backend.get(), static_cast<int>(model.plan().layers.size()), options.page_tokens, pages,
        /*seed=*/17, [this](base::PageId page) { Poison(page); });
  }

  // As f32 and f16, and as an int8 scale, all NaN.
  void Poison(base::PageId page) {
    const int64_t half = arena->layout().half_page_bytes();
    const int64_t at = static_cast<int64_t>(page) * half;
    std::memset(arena->keys() + at, 0xff, static_cast<size_t>(half));
    std::memset(arena->values() + at, 0xff, static_cast<size_t>(half));
  }

  KvArena* arena = nullptr;
};

inline CpuBackendOptions F32Options() {
  CpuBackendOptions options;
  options.threads = 2;
  options.activations = base::Activations::kF32;
  options.kv_dtype = base::KvDtype::kF32;
  return options;
}

inline testing::RandomModelOptions Quantised() {
  testing::RandomModelOptions options;
  options.width = 128;
  options.ffn_width = 192;
  options.heads = 8;
  options.weight_type = base::WeightType::kQ4_1;
  options.embedding_type = base::WeightType::kQ8_0;
  return options;
}

}  // namespace tokend::cpu

#endif  // TOKEND_TESTS_CORE_CPU_BACKEND_RIG_H_
