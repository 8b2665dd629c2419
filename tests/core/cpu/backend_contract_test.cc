// What the CPU backend promises of memory, options and steps, and what it refuses.
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

using base::KvDtype;
using testing::RandomModel;
using testing::SameBits;

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
