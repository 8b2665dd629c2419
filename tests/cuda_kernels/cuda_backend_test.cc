// The CUDA backend on small random models: against the dense double reference, and
// against itself however a sequence is cut, placed and accompanied.
#include "cuda_kernels/backend/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/ops/reference_model.h"
#include "gtest/gtest.h"
#include "tests/support/backend_checks.h"
#include "tests/support/compare.h"
#include "tests/support/family_recipes.h"
#include "tests/support/paged_runner.h"
#include "tests/support/random_model.h"

namespace tokend::cuda {
namespace {

using base::Activations;
using base::KvDtype;
using base::WeightType;
using testing::Near;
using testing::PagedRunner;
using testing::RandomModel;
using testing::RandomModelOptions;
using testing::ReferenceLogits;

CudaBackendOptions Options() {
  const auto device = OpenDevice(0);
  EXPECT_TRUE(device.ok()) << device.status();
  CudaBackendOptions options;
  if (device.ok()) options.device = *device;
  options.max_batch_tokens = 512;
  options.max_sequences = 32;
  return options;
}

struct Rig : testing::BackendRig {
  Rig(const RandomModel& model, const CudaBackendOptions& options, int64_t pages = 800) {
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
    runner =
        std::make_unique<PagedRunner>(backend.get(), static_cast<int>(model.plan().layers.size()),
                                      options.page_tokens, pages, /*seed=*/17, poison);
  }
  CudaBackend* cuda = nullptr;
};

RandomModelOptions Small() {
  RandomModelOptions options;
  options.layers = 2;
  options.width = 64;
  options.ffn_width = 96;
  options.heads = 4;
  return options;
}

TEST(CudaBackendTest, MatchesTheDenseReference) {
  std::vector<RandomModelOptions> shapes(4, Small());
  shapes[0].pairing = ops::RopePairing::kHalves;
  shapes[1].biases = true;
  shapes[1].tied = false;
  shapes[2].heads = 6;
  shapes[2].kv_heads = 3;
  shapes[2].weight_type = shapes[2].embedding_type = WeightType::kF16;
  shapes[3].weight_type = WeightType::kQ4_1;
  shapes[3].embedding_type = WeightType::kQ8_0;
  for (const RandomModelOptions& shape : shapes) {
    const RandomModel model(shape);
    const std::vector<int32_t> tokens = model.Tokens(40, 3);
    const std::vector<double> want = ReferenceLogits(model, tokens);
    const double deviation = testing::StandardDeviation(want);
    for (const Activations activations : {Activations::kF32, Activations::kF16}) {
      CudaBackendOptions options = Options();
      options.activations = activations;
      options.page_tokens = shape.biases ? 32 : 16;
      Rig rig(model, options);
      const double tolerance = activations == Activations::kF32 ? 1e-2 : 5e-2;
      EXPECT_TRUE(Near(rig.Run(tokens, 33), want, tolerance * deviation))
          << base::ActivationsName(activations) << " biases " << shape.biases;
    }
  }
}

// Every family's recipe is served by the same kernels: in one chunk, and row by row.
TEST(CudaBackendTest, EveryFamilyMatchesTheDenseReference) {
  for (const testing::FamilyRecipe& recipe : testing::FamilyRecipes()) {
    SCOPED_TRACE(recipe.family);
    const RandomModel model(recipe.options);
    const std::vector<int32_t> tokens = model.Tokens(24, 3);
    const std::vector<double> want = ReferenceLogits(model, tokens);
    const double deviation = testing::StandardDeviation(want);
    for (const Activations activations : {Activations::kF32, Activations::kF16}) {
      CudaBackendOptions options = Options();
      options.activations = activations;
      Rig rig(model, options);
      const double tolerance = activations == Activations::kF32 ? 1e-2 : 5e-2;
      const std::vector<float> got = rig.Run(tokens, 24);
      EXPECT_TRUE(Near(got, want, tolerance * deviation)) << base::ActivationsName(activations);
      EXPECT_TRUE(testing::SameBits(rig.Run(tokens, 1), got)) << base::ActivationsName(activations);
    }
  }
}

struct Matrix {
  Activations activations;
  KvDtype kv_dtype;
  int page_tokens;
};

class CudaDeterminismTest : public ::testing::TestWithParam<Matrix> {
 protected:
  CudaBackendOptions BackendOptions() const {
    CudaBackendOptions options = Options();
    options.activations = GetParam().activations;
    options.kv_dtype = GetParam().kv_dtype;
    options.page_tokens = GetParam().page_tokens;
    return options;
  }
  static RandomModelOptions Shape() {
    RandomModelOptions options = Small();
    options.weight_type = WeightType::kQ4_1;
    options.embedding_type = WeightType::kQ8_0;
    return options;
  }
  const RandomModel model_{Shape()};
};

TEST_P(CudaDeterminismTest, ChunksDoNotChangeABit) {
  Rig rig(model_, BackendOptions());
  testing::CheckChunks(&rig, model_, 270, {1, 64});
}

TEST_P(CudaDeterminismTest, NeighboursDoNotChangeABit) {
  Rig rig(model_, BackendOptions(), 3000);
  for (const int others : {1, 3, 31}) testing::CheckNeighbours(&rig, model_, 40, others);
}

TEST_P(CudaDeterminismTest, CopiedPagesDoNotChangeABit) {
  Rig rig(model_, BackendOptions());
  testing::CheckCopiedPages(&rig, model_);
}

INSTANTIATE_TEST_SUITE_P(Matrix, CudaDeterminismTest,
                         ::testing::Values(Matrix{Activations::kF16, KvDtype::kF16, 16},
                                           Matrix{Activations::kF16, KvDtype::kInt8, 32},
                                           Matrix{Activations::kF32, KvDtype::kF16, 32}),
                         [](const auto& matrix) {
                           return absl::StrCat(base::ActivationsName(matrix.param.activations),
                                               "_kv_", base::KvDtypeName(matrix.param.kv_dtype),
                                               "_pages_of_", matrix.param.page_tokens);
                         });

}  // namespace
}  // namespace tokend::cuda
