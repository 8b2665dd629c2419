// The CPU backend on small random models: against the dense double reference,
// and against itself however a sequence is cut, placed and accompanied.
#include "core/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/ops/reference_model.h"
#include "gtest/gtest.h"
#include "tests/support/compare.h"
#include "tests/support/paged_runner.h"
#include "tests/support/random_model.h"

namespace tokend::cpu {
namespace {

using base::Activations;
using base::KvDtype;
using base::WeightType;
using testing::Near;
using testing::PagedRunner;
using testing::RandomModel;
using testing::RandomModelOptions;
using testing::SameBits;

constexpr int64_t kPages = 800;

// A backend with an arena that is poisoned wherever no step may read.
struct Rig {
  Rig(const RandomModel& model, CpuBackendOptions options, int64_t pages = kPages) {
    auto created = CpuBackend::Create(model.plan(), options);
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    backend = *std::move(created);
    EXPECT_TRUE(backend->AllocateArena(pages).ok());
    runner = std::make_unique<PagedRunner>(
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
    PagedRunner::Sequence sequence = runner->NewSequence(mask);
    auto logits = runner->Run(&sequence, tokens, chunk);
    EXPECT_TRUE(logits.ok()) << logits.status().ToString();
    runner->Release(&sequence);
    return *std::move(logits);
  }

  std::unique_ptr<CpuBackend> backend;
  std::unique_ptr<PagedRunner> runner;
};

CpuBackendOptions F32Options() {
  CpuBackendOptions options;
  options.threads = 2;
  options.activations = Activations::kF32;
  options.kv_dtype = KvDtype::kF32;
  return options;
}

std::vector<double> Reference(const RandomModel& model, absl::Span<const int32_t> tokens,
                              const ops::AttentionMask& mask = {}) {
  std::vector<int64_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  return ops::ReferenceModel(model.plan()).Logits(tokens, mask, positions);
}

double LargestError(absl::Span<const float> got, absl::Span<const double> want) {
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    largest = std::max(largest, std::abs(got[i] - want[i]));
  }
  return largest / testing::StandardDeviation(want);
}

RandomModelOptions Quantised() {
  RandomModelOptions options;
  options.width = 128;
  options.ffn_width = 192;
  options.heads = 8;
  options.weight_type = WeightType::kQ4_1;
  options.embedding_type = WeightType::kQ8_0;
  return options;
}

// 40_numerics: f32 activations and KV within 1e-4 of the logits' deviation, f16
// KV within 2e-3.
TEST(CpuBackendTest, F32MatchesTheDenseReference) {
  std::vector<RandomModelOptions> shapes(6);
  shapes[0].pairing = ops::RopePairing::kHalves;
  shapes[1] = {2, 75, 101, 97, 2, 3, 1, 25, 24};  // odd everywhere, width no multiple of 32
  shapes[2] = {3, 64, 96, 64, 2, 8, 1, 256, 256};
  shapes[3] = {4, 90, 64, 333, 2, 5, 5, 18, 8};
  shapes[3].biases = true;
  shapes[3].tied = false;
  shapes[4] = Quantised();
  shapes[5] = Quantised();
  shapes[5].weight_type = WeightType::kBF16;
  shapes[5].embedding_type = WeightType::kF16;
  for (const RandomModelOptions& shape : shapes) {
    const RandomModel model(shape);
    const std::vector<int32_t> tokens = model.Tokens(70, 3);
    const std::vector<double> want = Reference(model, tokens);
    const double deviation = testing::StandardDeviation(want);
    for (const KvDtype dtype : {KvDtype::kF32, KvDtype::kF16}) {
      CpuBackendOptions options = F32Options();
      options.kv_dtype = dtype;
      options.page_tokens = shape.heads % 2 == 0 ? 16 : 32;
      Rig rig(model, options);
      const double tolerance = dtype == KvDtype::kF32 ? 1e-4 : 2e-3;
      EXPECT_TRUE(Near(rig.Run(tokens, 33), want, tolerance * deviation))
          << "seed " << shape.seed << " width " << shape.width << " " << KvDtypeName(dtype).data();
    }
  }
}

// A long context: several pieces of attention.
TEST(CpuBackendTest, LongContextMatchesTheDenseReference) {
  RandomModelOptions shape;
  shape.layers = 2;
  shape.width = 32;
  shape.ffn_width = 32;
  shape.heads = 2;
  shape.kv_heads = 1;
  const RandomModel model(shape);
  const std::vector<int32_t> tokens = model.Tokens(700, 5);
  const std::vector<double> want = Reference(model, tokens);
  Rig rig(model, F32Options());
  EXPECT_TRUE(Near(rig.Run(tokens, 512), want, 1e-4 * testing::StandardDeviation(want)));
}

TEST(CpuBackendTest, WindowsWithSinksMatchTheDenseReference) {
  const RandomModel model({});
  const std::vector<int32_t> tokens = model.Tokens(300, 6);
  for (const ops::AttentionMask mask :
       {ops::AttentionMask{0, 40}, ops::AttentionMask{4, 40}, ops::AttentionMask{4, 260},
        ops::AttentionMask{20, 33}, ops::AttentionMask{1, 1}}) {
    SCOPED_TRACE(::testing::Message() << mask.sink_tokens << " + " << mask.window_tokens);
    const std::vector<double> want = Reference(model, tokens, mask);
    Rig rig(model, F32Options());
    for (const int64_t chunk : {1, 64}) {
      EXPECT_TRUE(Near(rig.Run(tokens, chunk, mask), want, 1e-4 * testing::StandardDeviation(want)))
          << "chunk " << chunk;
    }
    EXPECT_EQ(rig.runner->free_pages(), kPages);
  }
}

TEST(CpuBackendTest, LayersMayHaveDifferentMasks) {
  const RandomModel model({});
  const std::vector<int32_t> tokens = model.Tokens(120, 7);
  const std::vector<ops::AttentionMask> masks = {{}, {2, 20}, {5, 48}};
  const std::vector<double> want =
      ops::ReferenceModel(model.plan()).Logits(tokens, masks, {50, 119});
  Rig rig(model, F32Options());
  PagedRunner::Sequence sequence = rig.runner->NewSequence();
  sequence.masks = masks;
  const auto got = rig.runner->Run(&sequence, tokens, 17);
  ASSERT_TRUE(got.ok());
  const auto vocabulary = static_cast<size_t>(model.plan().vocabulary_size);
  const double tolerance = 1e-4 * testing::StandardDeviation(want);
  const auto all = absl::MakeConstSpan(*got);
  const auto expected = absl::MakeConstSpan(want);
  EXPECT_TRUE(
      Near(all.subspan(50 * vocabulary, vocabulary), expected.subspan(0, vocabulary), tolerance));
  EXPECT_TRUE(Near(all.subspan(119 * vocabulary, vocabulary),
                   expected.subspan(vocabulary, vocabulary), tolerance));
}

// 40_numerics, on the same quantised weights: int8 at most 0.3 of the logits'
// deviation, int16 at most 1e-2 and a twentieth of int8's error.
TEST(CpuBackendTest, QuantisedActivationsStayWithinTheirBounds) {
  for (const WeightType type :
       {WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0, WeightType::kQ5_1,
        WeightType::kQ8_0, WeightType::kQ4_K, WeightType::kQ5_K, WeightType::kQ6_K}) {
    RandomModelOptions shape = Quantised();
    shape.weight_type = type;
    shape.width = shape.ffn_width = 256;
    shape.head_dim = shape.rope_dims = 32;
    const RandomModel model(shape);
    const std::vector<int32_t> tokens = model.Tokens(40, 8);
    const std::vector<double> want = Reference(model, tokens);
    double error[2];
    for (const Activations activations : {Activations::kInt8, Activations::kInt16}) {
      CpuBackendOptions options = F32Options();
      options.activations = activations;
      Rig rig(model, options);
      error[activations == Activations::kInt16] = LargestError(rig.Run(tokens, 64), want);
    }
    const std::string name(base::GetWeightType(type).name);
    EXPECT_LT(error[0], 0.3) << name;
    EXPECT_LT(error[1], 1e-2) << name;
    EXPECT_LT(error[1], error[0] / 20) << name;
  }
}

TEST(CpuBackendTest, Int8KvStaysNearTheReference) {
  const RandomModel model({});
  const std::vector<int32_t> tokens = model.Tokens(100, 9);
  const std::vector<double> want = Reference(model, tokens);
  CpuBackendOptions options = F32Options();
  options.kv_dtype = KvDtype::kInt8;
  Rig rig(model, options);
  // Half a step of 1 / 127 of the largest value, a few times amplified.
  EXPECT_LT(LargestError(rig.Run(tokens, 64), want), 0.1);
}

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
  const std::vector<int32_t> tokens = model_.Tokens(530, 10);
  for (const ops::AttentionMask mask : {ops::AttentionMask{}, ops::AttentionMask{4, 100}}) {
    Rig rig(model_, Options());
    const std::vector<float> whole = rig.Run(tokens, 512, mask);
    for (const int64_t chunk : {1, 7, 64}) {
      EXPECT_TRUE(SameBits(rig.Run(tokens, chunk, mask), whole)) << "chunk " << chunk;
    }
  }
}

TEST_P(DeterminismTest, NeighboursDoNotChangeABit) {
  const std::vector<int32_t> tokens = model_.Tokens(290, 11);
  Rig rig(model_, Options(), 3000);
  const std::vector<float> alone = rig.Run(tokens, 1);
  for (const int others : {1, 3, 31}) {
    std::vector<PagedRunner::Sequence> sequences;
    std::vector<std::vector<int32_t>> texts;
    for (int i = 0; i <= others; ++i) {
      const ops::AttentionMask mask = i % 3 == 1 ? ops::AttentionMask{4, 33} : ops::AttentionMask{};
      sequences.push_back(rig.runner->NewSequence(i == 0 ? ops::AttentionMask{} : mask));
      texts.push_back(i == 0 ? tokens : model_.Tokens(400, 100 + static_cast<uint64_t>(i)));
    }
    std::vector<float> got;
    std::vector<size_t> at(sequences.size(), 0);
    for (int step = 0; at[0] < tokens.size(); ++step) {
      std::vector<PagedRunner::Feed> feeds;
      // The one watched is neither always first nor always fed alike.
      const size_t start = static_cast<size_t>(step) % sequences.size();
      for (size_t k = 0; k < sequences.size(); ++k) {
        const size_t i = (start + k) % sequences.size();
        const size_t want = 1 + static_cast<size_t>(step * 7 + static_cast<int>(i) * 5) % 12;
        const size_t count = std::min(want, texts[i].size() - at[i]);
        if (count == 0) continue;
        feeds.push_back({&sequences[i], absl::MakeConstSpan(texts[i]).subspan(at[i], count),
                         i == 0 || k % 2 == 0});
        at[i] += count;
      }
      const auto logits = rig.runner->Step(feeds);
      ASSERT_TRUE(logits.ok()) << logits.status().ToString();
      for (size_t k = 0; k < feeds.size(); ++k) {
        if (feeds[k].sequence != &sequences[0]) continue;
        got.insert(got.end(), (*logits)[k].begin(), (*logits)[k].end());
      }
    }
    EXPECT_TRUE(SameBits(got, alone)) << others << " others";
    for (PagedRunner::Sequence& sequence : sequences) rig.runner->Release(&sequence);
  }
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

// A fork: the partial last page is copied, full pages are shared.
TEST_P(DeterminismTest, CopiedPagesDoNotChangeABit) {
  const std::vector<int32_t> tokens = model_.Tokens(120, 13);
  Rig rig(model_, Options());
  const std::vector<float> whole = rig.Run(tokens, 1);
  const auto vocabulary = static_cast<size_t>(model_.plan().vocabulary_size);
  const size_t head = 75;
  const auto all = absl::MakeConstSpan(tokens);

  PagedRunner::Sequence parent = rig.runner->NewSequence();
  ASSERT_TRUE(rig.runner->Run(&parent, all.subspan(0, head), 30).ok());
  PagedRunner::Sequence fork = parent;
  std::vector<ops::PageCopy> copies;
  for (auto& pages : fork.pages) {
    const base::PageId copy = rig.runner->Take();
    copies.push_back({pages.back(), copy, static_cast<int32_t>(head) % GetParam().page_tokens});
    pages.back() = copy;
  }
  ASSERT_TRUE(rig.backend->CopyPages(copies).ok());
  // The parent goes elsewhere and must not disturb the fork.
  ASSERT_TRUE(rig.runner->Run(&parent, model_.Tokens(40, 14), 9).ok());
  const auto got = rig.runner->Run(&fork, all.subspan(head), 7);
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(SameBits(*got, absl::MakeConstSpan(whole).subspan(head * vocabulary)));
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

TEST(CpuBackendTest, PageBytesFollowTheFormula) {
  const RandomModel model(Quantised());  // 2 KV heads of 16
  EXPECT_EQ(CpuBackend::PageBytes(model.plan(), KvDtype::kF32, 16), 2 * 2 * 16 * 16 * 4);
  EXPECT_EQ(CpuBackend::PageBytes(model.plan(), KvDtype::kF16, 32), 2 * 2 * 16 * 32 * 2);
  EXPECT_EQ(CpuBackend::PageBytes(model.plan(), KvDtype::kInt8, 16), 2 * 2 * 16 * (16 + 2));
  CpuBackendOptions options = F32Options();
  options.kv_dtype = KvDtype::kInt8;
  Rig rig(model, options);
  EXPECT_EQ(rig.backend->info().page_bytes,
            CpuBackend::PageBytes(model.plan(), KvDtype::kInt8, 16));
  EXPECT_GT(rig.backend->info().weight_bytes, 0);
  EXPECT_GT(rig.backend->info().workspace_bytes, 0);
}

TEST(CpuBackendTest, ReportsProgressWhileItPacks) {
  const RandomModel model({});
  CpuBackendOptions options = F32Options();
  std::vector<int64_t> done;
  int64_t total = 0;
  options.progress = [&](int64_t bytes, int64_t of) {
    done.push_back(bytes);
    total = of;
  };
  ASSERT_TRUE(CpuBackend::Create(model.plan(), options).ok());
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), total);
}

TEST(CpuBackendTest, RefusesOptionsOutOfRange) {
  const RandomModel model({});
  const auto code = [&](auto change) {
    CpuBackendOptions options = F32Options();
    change(&options);
    return CpuBackend::Create(model.plan(), options).status().code();
  };
  using Options = CpuBackendOptions;
  EXPECT_EQ(code([](Options* o) { o->page_tokens = 8; }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](Options* o) { o->threads = 0; }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](Options* o) { o->max_batch_tokens = 0; }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](Options* o) { o->max_sequences = 0; }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](Options* o) { o->isa = "mmx"; }), absl::StatusCode::kInvalidArgument);
}

TEST(CpuBackendTest, AnArenaThatDoesNotFitIsAnError) {
  const RandomModel model({});
  const auto backend = CpuBackend::Create(model.plan(), F32Options());
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->AllocateArena(int64_t{1} << 44).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE((*backend)->AllocateArena(4).ok());
}

TEST(CpuBackendTest, RefusesAStepThatBreaksTheContract) {
  const RandomModel model({});
  Rig rig(model, F32Options());
  std::vector<base::PageId> pages = {base::PageId{0}};
  std::vector<ops::LayerKv> layers(3, ops::LayerKv{pages.data(), 0, 1, 0, {}});
  const std::vector<int32_t> tokens = {1, 2};
  const std::vector<int32_t> bad_tokens = {1, 203};
  const std::vector<int32_t> rows = {1}, bad_rows = {1, 1};
  const std::vector<ops::StepSequence> sequences = {{0, 2, 0, layers}};
  const std::vector<ops::StepSequence> short_sequences = {{0, 1, 0, layers}};
  EXPECT_TRUE(rig.backend->Forward({tokens, sequences, rows}).ok());
  for (const ops::StepBatch& batch :
       {ops::StepBatch{bad_tokens, sequences, rows}, ops::StepBatch{tokens, short_sequences, rows},
        ops::StepBatch{tokens, sequences, bad_rows}, ops::StepBatch{{}, {}, {}}}) {
    const auto output = rig.backend->Forward(batch);
    EXPECT_EQ(base::GetErrorReason(output.status()), base::ErrorReason::kBackendFailed);
  }
  const ops::PageCopy copy = {base::PageId{0}, base::PageId{kPages}, 1};
  EXPECT_EQ(base::GetErrorReason(rig.backend->CopyPages({&copy, 1})),
            base::ErrorReason::kBackendFailed);
}

TEST(CpuBackendTest, AStepWithoutLogitsOnlyStoresKv) {
  const RandomModel model({});
  const std::vector<int32_t> tokens = model.Tokens(40, 15);
  Rig rig(model, F32Options());
  const std::vector<float> whole = rig.Run(tokens, 1);
  std::vector<base::PageId> pages(3);
  std::vector<std::vector<base::PageId>> tables;
  for (int layer = 0; layer < 3; ++layer) {
    tables.push_back({rig.runner->Take(), rig.runner->Take(), rig.runner->Take()});
  }
  std::vector<ops::LayerKv> layers;
  for (const auto& table : tables) layers.push_back({table.data(), 0, 3, 0, {}});
  const std::vector<ops::StepSequence> first = {{0, 39, 0, layers}}, second = {{0, 1, 39, layers}};
  const auto all = absl::MakeConstSpan(tokens);
  const auto silent = rig.backend->Forward({all.subspan(0, 39), first, {}});
  ASSERT_TRUE(silent.ok());
  EXPECT_TRUE(silent->logits.empty());
  const std::vector<int32_t> row = {0};
  const auto last = rig.backend->Forward({all.subspan(39), second, row});
  ASSERT_TRUE(last.ok());
  EXPECT_TRUE(SameBits(last->logits, absl::MakeConstSpan(whole).subspan(39 * last->logits.size(),
                                                                        last->logits.size())));
}

}  // namespace
}  // namespace tokend::cpu
