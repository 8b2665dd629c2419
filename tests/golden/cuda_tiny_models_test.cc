// The CUDA backend on small models with random weights, against float32
// `transformers`.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/gguf/file.h"
#include "core/model/model.h"
#include "cuda_kernels/backend/cuda_backend.h"
#include "cuda_kernels/runtime/device.h"
#include "gtest/gtest.h"
#include "tests/golden/tiny_models.h"
#include "tests/support/golden.h"

namespace tokend {
namespace {

constexpr int kPageTokens = 16;
constexpr size_t kStandInTokens = 40;

class CudaTinyModelTest : public ::testing::TestWithParam<std::string> {};

struct Mode {
  base::Activations activations;
  testing::GoldenTolerance tolerance;
};

TEST_P(CudaTinyModelTest, AgreesWithTransformers) {
  auto golden = testing::LoadTinyModel(GetParam());
  if (!golden.has_value()) GTEST_SKIP() << "no ../shared/tiny_models/" << GetParam() << ".gguf";
  const auto file = gguf::File::Open(golden->gguf_path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto model = model::Model::Load(**file, {.context_tokens = golden->context_tokens});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto device = cuda::OpenDevice(0);
  ASSERT_TRUE(device.ok()) << device.status();
  // Where a device is stood in for, the longest prompts take ten times the others' time.
  if (device->name.find("SIMT") != std::string::npos) {
    std::erase_if(golden->cases, [](const auto& c) { return c.ids.size() > kStandInTokens; });
  }
  for (const Mode& mode : {Mode{base::Activations::kF32, {1e-2, 2e-3, false}},
                           Mode{base::Activations::kF16, {2e-2, 1e-2, true, true}}}) {
    SCOPED_TRACE(std::string(base::ActivationsName(mode.activations)));
    cuda::CudaBackendOptions options;
    options.device = *device;
    options.activations = mode.activations;
    options.page_tokens = kPageTokens;
    options.max_batch_tokens = 64;
    options.max_sequences = 2;
    const auto backend = cuda::CudaBackend::Create((*model)->plan(), options);
    ASSERT_TRUE(backend.ok()) << backend.status();
    testing::CheckGolden(*golden, mode.tolerance, (*model)->plan(), kPageTokens, 64,
                         backend->get());
  }
}

INSTANTIATE_TEST_SUITE_P(Files, CudaTinyModelTest, ::testing::ValuesIn(testing::TinyModelNames()),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace tokend
