// The CPU backend on small models with random weights, against float32
// `transformers`.
#include <memory>
#include <string>

#include "core/cpu/cpu_backend.h"
#include "core/gguf/file.h"
#include "core/model/model.h"
#include "gtest/gtest.h"
#include "tests/golden/tiny_models.h"
#include "tests/support/golden.h"

namespace tokend {
namespace {

constexpr int kPageTokens = 16;

class CpuTinyModelTest : public ::testing::TestWithParam<std::string> {};

// Rounding K and V to f16 costs a model of two layers up to 5e-3 in one logit of 384.
struct Mode {
  base::KvDtype kv_dtype;
  testing::GoldenTolerance tolerance;
};

TEST_P(CpuTinyModelTest, AgreesWithTransformers) {
  const auto golden = testing::LoadTinyModel(GetParam());
  if (!golden.has_value()) GTEST_SKIP() << "no ../shared/tiny_models/" << GetParam() << ".gguf";
  const auto file = gguf::File::Open(golden->gguf_path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto model = model::Model::Load(**file, {.context_tokens = golden->context_tokens});
  ASSERT_TRUE(model.ok()) << model.status();
  for (const Mode& mode : {Mode{base::KvDtype::kF32, {1e-4, 1e-4, false}},
                           Mode{base::KvDtype::kF16, {1e-2, 2e-3, false, true}}}) {
    SCOPED_TRACE(std::string(base::KvDtypeName(mode.kv_dtype)));
    const auto backend =
        cpu::CpuBackend::Create((*model)->plan(), {.threads = 2,
                                                   .activations = base::Activations::kF32,
                                                   .kv_dtype = mode.kv_dtype,
                                                   .page_tokens = kPageTokens});
    ASSERT_TRUE(backend.ok()) << backend.status();
    testing::CheckGolden(*golden, mode.tolerance, (*model)->plan(), kPageTokens, 64,
                         backend->get());
  }
}

INSTANTIATE_TEST_SUITE_P(Files, CpuTinyModelTest, ::testing::ValuesIn(testing::TinyModelNames()),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace tokend
