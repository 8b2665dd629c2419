// All kernels of a step one after the other, in few rows of one layer: short enough for
// the shadow memory and for sanitizers.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tests/cuda_kernels/backend_rig.h"
#include "tests/support/compare.h"

namespace tokend::cuda {
namespace {

using testing::Near;
using testing::PagedRunner;
using testing::SameBits;

struct Mode {
  base::Activations activations;
  base::KvDtype kv_dtype;
  double tolerance;  // of the logits' deviation
};

class CudaBackendShortTest : public ::testing::TestWithParam<Mode> {};

TEST_P(CudaBackendShortTest, EachKindOfStepMatchesTheDenseReference) {
  testing::RandomModelOptions shape = Small();
  shape.layers = 1;
  shape.biases = true;
  shape.vocabulary_size = 72;
  shape.weight_type = base::WeightType::kQ4_1;
  shape.embedding_type = base::WeightType::kQ8_0;
  const testing::RandomModel model(shape);
  CudaBackendOptions options = Options();
  options.activations = GetParam().activations;
  options.kv_dtype = GetParam().kv_dtype;
  options.max_batch_tokens = 24;
  options.max_sequences = 2;
  Rig rig(model, options, /*pages=*/8);
  const std::vector<int32_t> tokens = model.Tokens(19, 3);
  const std::vector<double> want = testing::ReferenceLogits(model, tokens);

  // One chunk.
  const std::vector<float> whole = rig.Run(tokens, 19);
  EXPECT_TRUE(Near(whole, want, GetParam().tolerance * testing::StandardDeviation(want)));
  // Most of it, a row alone, a row beside another sequence's, one of a fork.
  const auto logits_of = [&](int64_t row) {
    return absl::MakeConstSpan(whole).subspan(static_cast<size_t>(row) * 72, 72);
  };
  const auto token = [&](int64_t row) {
    return absl::MakeConstSpan(tokens).subspan(static_cast<size_t>(row), 1);
  };
  PagedRunner::Sequence sequence = rig.runner->NewSequence();
  ASSERT_TRUE(rig.runner->Run(&sequence, absl::MakeConstSpan(tokens).first(16), 16).ok());
  auto got = rig.runner->Step({{&sequence, token(16)}});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(SameBits((*got)[0], logits_of(16)));
  PagedRunner::Sequence other = rig.runner->NewSequence({2, 4});
  got = rig.runner->Step({{&other, absl::MakeConstSpan(tokens).first(7)}, {&sequence, token(17)}});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(SameBits((*got)[1], logits_of(17)));
  PagedRunner::Sequence fork = sequence;
  fork.pages[0][1] = rig.runner->Take();
  ASSERT_TRUE(rig.backend->CopyPages({{sequence.pages[0][1], fork.pages[0][1], 2}}).ok());
  got = rig.runner->Step({{&fork, token(18)}});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(SameBits((*got)[0], logits_of(18)));
}

INSTANTIATE_TEST_SUITE_P(
    Modes, CudaBackendShortTest,
    ::testing::Values(Mode{base::Activations::kF16, base::KvDtype::kInt8, 5e-2},
                      Mode{base::Activations::kF32, base::KvDtype::kF16, 1e-2}),
    [](const auto& mode) { return std::string(base::ActivationsName(mode.param.activations)); });

}  // namespace
}  // namespace tokend::cuda
