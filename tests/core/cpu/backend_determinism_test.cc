// The CPU backend against itself, however a sequence is cut, placed and accompanied.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/cpu/backend_rig.h"
#include "tests/support/backend_determinism_suite.h"
#include "tests/support/compare.h"

namespace tokend::cpu {
namespace {

using base::Activations;
using base::KvDtype;
using testing::SameBits;
using testing::SetupNames;

template <Activations kActivations, KvDtype kKvDtype, int kPageTokens>
struct Setup {
  using Rig = cpu::Rig;
  static constexpr int64_t kTokens = 530;
  static constexpr int64_t kNeighbourTokens = 290;

  static testing::RandomModelOptions Shape() { return Quantised(); }
  static CpuBackendOptions Options() {
    CpuBackendOptions options;
    options.threads = 2;
    options.activations = kActivations;
    options.kv_dtype = kKvDtype;
    options.page_tokens = kPageTokens;
    return options;
  }
  static std::vector<std::vector<int64_t>> Cuts() { return {{1}, {7}, {64}}; }
  static std::string Name() { return testing::SetupName(kActivations, kKvDtype, kPageTokens); }
};

using Setups = ::testing::Types<
    Setup<Activations::kInt16, KvDtype::kF16, 16>, Setup<Activations::kInt16, KvDtype::kF16, 32>,
    Setup<Activations::kInt8, KvDtype::kInt8, 16>, Setup<Activations::kInt16, KvDtype::kInt8, 32>,
    Setup<Activations::kF32, KvDtype::kF32, 16>, Setup<Activations::kF32, KvDtype::kF16, 32>>;
template <typename Setup>
using CpuDeterminismTest = testing::BackendDeterminismTest<Setup>;
TYPED_TEST_SUITE(CpuDeterminismTest, Setups, SetupNames);

TYPED_TEST(CpuDeterminismTest, ThreadsAndInstructionSetsDoNotChangeABit) {
  const std::vector<int32_t> tokens = this->model_.Tokens(300, 12);
  CpuBackendOptions options = TypeParam::Options();
  options.threads = 1;
  const std::vector<float> one = Rig(this->model_, options).Run(tokens, 50);
  options.threads = 3;
  EXPECT_TRUE(SameBits(Rig(this->model_, options).Run(tokens, 50), one));
  for (const Isa isa : SupportedIsas()) {
    options.isa = std::string(IsaName(isa));
    EXPECT_TRUE(SameBits(Rig(this->model_, options).Run(tokens, 100), one)) << options.isa;
  }
}

}  // namespace
}  // namespace tokend::cpu

namespace tokend::testing {
INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, BackendDeterminismTest, cpu::Setups, SetupNames);
}
