#ifndef TOKEND_TESTS_CORE_CPU_BACKEND_RIG_H_
#define TOKEND_TESTS_CORE_CPU_BACKEND_RIG_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "core/cpu/cpu_backend.h"
#include "core/ops/reference_model.h"
#include "gtest/gtest.h"
#include "tests/support/compare.h"
#include "tests/support/paged_runner.h"
#include "tests/support/random_model.h"

namespace tokend::cpu {

inline constexpr int64_t kPages = 800;

// A backend with an arena that is poisoned wherever no step may read.
struct Rig {
  Rig(const testing::RandomModel& model, CpuBackendOptions options, int64_t pages = kPages) {
    auto created = CpuBackend::Create(model.plan(), options);
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    backend = *std::move(created);
    EXPECT_TRUE(backend->AllocateArena(pages).ok());
    runner = std::make_unique<testing::PagedRunner>(
        backend.get(), static_cast<int>(model.plan().layers.size()), options.page_tokens, pages,
        /*seed=*/17, [this](base::PageId page) { Poison(page); });
  }

  // As f32 and f16, and as an int8 scale, all NaN.
  void Poison(base::PageId page) {
    KvArena* arena = backend->arena();
    const int64_t half = arena->layout().half_page_bytes();
    const int64_t at = static_cast<int64_t>(page) * half;
    std::memset(arena->keys() + at, 0xff, static_cast<size_t>(half));
    std::memset(arena->values() + at, 0xff, static_cast<size_t>(half));
  }

  std::vector<float> Run(absl::Span<const int32_t> tokens, int64_t chunk,
                         const ops::AttentionMask& mask = {}) {
    testing::PagedRunner::Sequence sequence = runner->NewSequence(mask);
    auto logits = runner->Run(&sequence, tokens, chunk);
    EXPECT_TRUE(logits.ok()) << logits.status().ToString();
    runner->Release(&sequence);
    return *std::move(logits);
  }

  std::unique_ptr<CpuBackend> backend;
  std::unique_ptr<testing::PagedRunner> runner;
};

inline CpuBackendOptions F32Options() {
  CpuBackendOptions options;
  options.threads = 2;
  options.activations = base::Activations::kF32;
  options.kv_dtype = base::KvDtype::kF32;
  return options;
}

inline std::vector<double> Reference(const testing::RandomModel& model,
                                     absl::Span<const int32_t> tokens,
                                     const ops::AttentionMask& mask = {}) {
  std::vector<int64_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  return ops::ReferenceModel(model.plan()).Logits(tokens, mask, positions);
}

inline double LargestError(absl::Span<const float> got, absl::Span<const double> want) {
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    largest = std::max(largest, std::abs(got[i] - want[i]));
  }
  return largest / testing::StandardDeviation(want);
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
