// The CPU backend against itself, however a sequence is cut, placed and accompanied.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "gtest/gtest.h"
#include "tests/core/cpu/backend_rig.h"
#include "tests/support/compare.h"

namespace tokend::cpu {
namespace {

using base::Activations;
using base::KvDtype;
using testing::RandomModel;
using testing::SameBits;

struct Matrix {
  Activations activations;
  KvDtype kv_dtype;
  int page_tokens;
};

class DeterminismTest : public ::testing::TestWithParam<Matrix> {
 protected:
  CpuBackendOptions Options() const {
    CpuBackendOptions options;
    options.threads = 2;
    options.activations = GetParam().activations;
    options.kv_dtype = GetParam().kv_dtype;
    options.page_tokens = GetParam().page_tokens;
    return options;
  }
  const RandomModel model_{Quantised()};
};

TEST_P(DeterminismTest, ChunksDoNotChangeABit) {
  Rig rig(model_, Options());
  testing::CheckChunks(&rig, model_, 530, {1, 7, 64});
}

TEST_P(DeterminismTest, NeighboursDoNotChangeABit) {
  Rig rig(model_, Options(), 3000);
  for (const int others : {1, 3, 31}) testing::CheckNeighbours(&rig, model_, 290, others);
}

TEST_P(DeterminismTest, ThreadsAndInstructionSetsDoNotChangeABit) {
  const std::vector<int32_t> tokens = model_.Tokens(300, 12);
  CpuBackendOptions options = Options();
  options.threads = 1;
  const std::vector<float> one = Rig(model_, options).Run(tokens, 50);
  options.threads = 3;
  EXPECT_TRUE(SameBits(Rig(model_, options).Run(tokens, 50), one));
  for (const Isa isa : SupportedIsas()) {
    options.isa = std::string(IsaName(isa));
    EXPECT_TRUE(SameBits(Rig(model_, options).Run(tokens, 100), one)) << options.isa;
  }
}

TEST_P(DeterminismTest, CopiedPagesDoNotChangeABit) {
  Rig rig(model_, Options());
  testing::CheckCopiedPages(&rig, model_);
}

INSTANTIATE_TEST_SUITE_P(Matrix, DeterminismTest,
                         ::testing::Values(Matrix{Activations::kInt16, KvDtype::kF16, 16},
                                           Matrix{Activations::kInt16, KvDtype::kF16, 32},
                                           Matrix{Activations::kInt8, KvDtype::kInt8, 16},
                                           Matrix{Activations::kInt16, KvDtype::kInt8, 32},
                                           Matrix{Activations::kF32, KvDtype::kF32, 16},
                                           Matrix{Activations::kF32, KvDtype::kF16, 32}),
                         [](const auto& matrix) {
                           return absl::StrCat(base::ActivationsName(matrix.param.activations),
                                               "_kv_", base::KvDtypeName(matrix.param.kv_dtype),
                                               "_pages_of_", matrix.param.page_tokens);
                         });

}  // namespace
}  // namespace tokend::cpu
