// The CPU backend on small models with random weights, against float32
// `transformers`.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/cpu/cpu_backend.h"
#include "core/gguf/file.h"
#include "core/model/model.h"
#include "gtest/gtest.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"
#include "tests/support/paged_runner.h"

namespace tokend {
namespace {

constexpr int kPageTokens = 16;
constexpr int64_t kMaxTokens = 320;

class CpuTinyModelTest : public ::testing::TestWithParam<std::string> {};

int32_t ArgMax(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Largest and root mean square error that are allowed, as shares of the logits'
// standard deviation. Rounding K and V to f16 costs these models up to 5e-3 in one
// logit of 384.
struct Mode {
  base::KvDtype kv_dtype;
  double tolerance;
  double rms_tolerance;
};

void CheckCase(const testing::GoldenCase& golden, const Mode& mode, testing::PagedRunner* runner) {
  SCOPED_TRACE(golden.name);
  testing::PagedRunner::Sequence sequence = runner->NewSequence();
  auto logits = runner->Run(&sequence, golden.ids, 64);
  ASSERT_TRUE(logits.ok()) << logits.status();
  const size_t vocabulary = logits->size() / golden.ids.size();
  for (const auto& [position, want] : golden.logits) {
    const auto got = absl::MakeConstSpan(*logits).subspan(
        static_cast<size_t>(position) * vocabulary, vocabulary);
    const double deviation = testing::StandardDeviation(want);
    EXPECT_TRUE(testing::Near(got, want, mode.tolerance * deviation)) << "position " << position;
    EXPECT_LT(testing::RootMeanSquareError(got, want), mode.rms_tolerance * deviation)
        << "position " << position;
  }
  std::vector<float> last(logits->end() - static_cast<ptrdiff_t>(vocabulary), logits->end());
  for (size_t i = 0; i < golden.greedy.size(); ++i) {
    const int32_t token = ArgMax(last);
    ASSERT_EQ(token, golden.greedy[i]) << "output token " << i << ", gap " << golden.gap[i];
    logits = runner->Run(&sequence, {&token, 1}, 1);
    ASSERT_TRUE(logits.ok()) << logits.status();
    last = *std::move(logits);
  }
  runner->Release(&sequence);
}

TEST_P(CpuTinyModelTest, AgreesWithTransformers) {
  const auto golden = testing::LoadTinyModel(GetParam());
  if (!golden.has_value()) GTEST_SKIP() << "no ../shared/tiny_models/" << GetParam() << ".gguf";
  const auto file = gguf::File::Open(golden->gguf_path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto model = model::Model::Load(**file, {});
  ASSERT_TRUE(model.ok()) << model.status();
  for (const Mode& mode :
       {Mode{base::KvDtype::kF32, 1e-4, 1e-4}, Mode{base::KvDtype::kF16, 1e-2, 2e-3}}) {
    SCOPED_TRACE(std::string(base::KvDtypeName(mode.kv_dtype)));
    const auto backend =
        cpu::CpuBackend::Create((*model)->plan(), {.threads = 2,
                                                   .activations = base::Activations::kF32,
                                                   .kv_dtype = mode.kv_dtype,
                                                   .page_tokens = kPageTokens});
    ASSERT_TRUE(backend.ok()) << backend.status();
    const int layers = static_cast<int>((*model)->plan().layers.size());
    const int64_t pages = layers * (kMaxTokens / kPageTokens);
    ASSERT_TRUE((*backend)->AllocateArena(pages).ok());
    testing::PagedRunner runner(backend->get(), layers, kPageTokens, pages, /*seed=*/1);
    for (const testing::GoldenCase& c : golden->cases) CheckCase(c, mode, &runner);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, CpuTinyModelTest, ::testing::Values("llama", "llama3", "mistral"),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace tokend
