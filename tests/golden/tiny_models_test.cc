// A backend on small models with random weights, against float32 `transformers`.
// Compiled for each backend.
#include <string>
#include <vector>

#include "core/gguf/file.h"
#include "core/model/model.h"
#include "gtest/gtest.h"
#include "tests/golden/tiny_modes.h"
#include "tests/support/golden.h"

namespace tokend {
namespace {

class TinyModelTest : public ::testing::TestWithParam<std::string> {};

TEST_P(TinyModelTest, AgreesWithTransformers) {
  auto golden = testing::LoadTinyModel(GetParam());
  if (!golden.has_value()) GTEST_SKIP() << "no ../shared/tiny_models/" << GetParam() << ".gguf";
  std::erase_if(golden->cases, [](const auto& c) { return !testing::TakesCase(c); });
  const auto file = gguf::File::Open(golden->gguf_path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto model = model::Model::Load(**file, {.context_tokens = golden->context_tokens});
  ASSERT_TRUE(model.ok()) << model.status();
  for (const testing::TinyMode& mode : testing::TinyModes()) {
    SCOPED_TRACE(mode.name);
    const auto backend = mode.create((*model)->plan());
    ASSERT_TRUE(backend.ok()) << backend.status();
    testing::CheckGolden(*golden, mode.tolerance, (*model)->plan(), testing::kTinyPageTokens, 64,
                         backend->get());
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TinyModelTest, ::testing::ValuesIn(testing::TinyModelNames()),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace tokend
