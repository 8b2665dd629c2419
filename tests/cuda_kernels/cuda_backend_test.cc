// The CUDA backend on small random models: against the dense double reference, and
// against itself however a sequence is cut, placed and accompanied.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cuda_kernels/backend_rig.h"
#include "tests/support/backend_determinism_suite.h"
#include "tests/support/compare.h"
#include "tests/support/family_recipes.h"
#include "tests/support/random_model.h"

namespace tokend::cuda {
namespace {

using base::Activations;
using base::KvDtype;
using base::WeightType;
using testing::Near;
using testing::RandomModel;
using testing::RandomModelOptions;
using testing::ReferenceLogits;

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
      EXPECT_TRUE(testing::SameBits(rig.RunCut(tokens, {1, 19, 1}), got))
          << base::ActivationsName(activations);
    }
  }
}

template <Activations kActivations, KvDtype kKvDtype, int kPageTokens>
struct Setup {
  using Rig = cuda::Rig;
  static constexpr int64_t kTokens = 270;
  static constexpr int64_t kNeighbourTokens = 25;

  static RandomModelOptions Shape() {
    RandomModelOptions options = Small();
    options.weight_type = WeightType::kQ4_1;
    options.embedding_type = WeightType::kQ8_0;
    return options;
  }
  static CudaBackendOptions Options() {
    CudaBackendOptions options = cuda::Options();
    options.activations = kActivations;
    options.kv_dtype = kKvDtype;
    options.page_tokens = kPageTokens;
    return options;
  }
  // Rows alone at the start and across the end of attention's first piece.
  static std::vector<std::vector<int64_t>> Cuts() { return {{64}, {1, 1, 1, 7, 240, 1}}; }
  static std::string Name() { return testing::SetupName(kActivations, kKvDtype, kPageTokens); }
};

using Setups = ::testing::Types<Setup<Activations::kF16, KvDtype::kF16, 16>,
                                Setup<Activations::kF16, KvDtype::kInt8, 32>,
                                Setup<Activations::kF32, KvDtype::kF16, 32>>;
}  // namespace
}  // namespace tokend::cuda

namespace tokend::testing {
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, BackendDeterminismTest, cuda::Setups, SetupNames);
}
