// What is computed again where a windowed session's KV was dropped.
#include "core/kv/lead_in.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

constexpr int kPageTokens = 4;

Layout RandomLayout(std::minstd_rand* random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>((*random)() % n); };
  const int layers = 1 + static_cast<int>(below(6));
  RetentionPolicy policy = {RetentionPolicy::Kind::kSlidingWindow, below(6), 1 + below(9)};
  if (below(4) == 0) policy = {};
  if (policy.window_tokens > 0 && layers > 1 && below(2) == 0) {
    policy.kind = RetentionPolicy::Kind::kLayered;
    policy.full_layers = 1 + static_cast<int32_t>(below(layers - 1));
  }
  const int64_t local = below(3) == 0 ? 0 : 1 + below(12);
  std::vector<int64_t> local_windows;
  for (int i = 0; i < layers; ++i) local_windows.push_back(below(2) == 0 ? 0 : local);
  return MakeLayout(policy, local_windows, kPageTokens);
}

// Runs the plan on flags in place of numbers: exact[l][q] says whether layer l has
// the right K and V of position q. What is wrong, or empty.
std::string RunFlags(const Layout& layout, const LeadIn& plan, const Survivors& survivors) {
  std::vector<bool> row_exact(plan.end, true);
  for (int layer = 0; layer < layout.layers; ++layer) {
    const int g = layout.group_of_layer[layer];
    const ops::AttentionMask& mask = layout.groups[g].mask;
    const bool full = layout.groups[g].full();
    const int64_t window_begin = full ? 0 : WindowBegin(layout, g, plan.end);
    std::vector<bool> there(plan.end, false), exact(plan.end, false);
    for (int64_t q = 0; q < plan.end; ++q) {
      const bool survives =
          full ? q < survivors.full_until[g]
               : q < mask.sink_tokens || (q >= window_begin && (survivors.windows >> g & 1) != 0);
      const bool row = q >= plan.start && (layer == 0 || q >= plan.attend_begin[layer - 1]);
      const bool stores = row && q >= plan.store_begin[layer];
      there[q] = survives || stores;
      exact[q] = stores ? row_exact[q] : survives;
      if (stores && !exact[q]) return absl::StrCat("layer ", layer, " stores a wrong row ", q);
    }
    for (int64_t p = plan.start; p < plan.end; ++p) {
      if (p < plan.attend_begin[layer]) {
        row_exact[p] = false;
        continue;
      }
      for (int64_t q = 0; q <= p; ++q) {
        if (!mask.Sees(p, q)) continue;
        if (!there[q]) return absl::StrCat("layer ", layer, ": row ", p, " lacks ", q);
        row_exact[p] = row_exact[p] && exact[q];
      }
    }
    for (int64_t q = window_begin; q < plan.end; ++q) {
      if (!exact[q]) return absl::StrCat("layer ", layer, " lacks ", q, " at the end");
    }
  }
  return "";
}

TEST(LeadInTest, LeavesEveryWindowExact) {
  const auto seed = static_cast<unsigned>(std::random_device()());
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  int planned = 0;
  for (int i = 0; i < 20000; ++i) {
    const Layout layout = RandomLayout(&random);
    const int64_t end = kPageTokens * static_cast<int64_t>(1 + random() % 40);
    Survivors survivors;
    survivors.windows = static_cast<uint32_t>(random());
    for (int64_t& until : survivors.full_until) {
      until = random() % 2 == 0 ? end : kPageTokens * static_cast<int64_t>(random() % 40);
    }
    const LeadIn plan = PlanLeadIn(layout, end, survivors);
    if (plan.start == 0) continue;
    ++planned;
    ASSERT_EQ(RunFlags(layout, plan, survivors), "")
        << layout.layers << " layers, " << layout.policy.full_layers << " full, sinks "
        << layout.policy.sink_tokens << ", window " << layout.policy.window_tokens << ", end "
        << end;
  }
  EXPECT_GT(planned, 2000);
}

// Keys and values of the last W positions depend on the last L (W - 1) + 1 tokens
// before a query; whole pages at the top cost up to a page more.
TEST(LeadInTest, IsAsShortAsTheReceptiveField) {
  for (int layers = 1; layers <= 5; ++layers) {
    for (int64_t window = 1; window <= 20; ++window) {
      const Layout layout = MakeLayout({RetentionPolicy::Kind::kSlidingWindow, 2, window},
                                       std::vector<int64_t>(layers, 0), kPageTokens);
      const int64_t end = 400;
      const LeadIn plan = PlanLeadIn(layout, end, {});
      const int64_t field = layers * (window - 1);
      EXPECT_GE(end - plan.start, field);
      EXPECT_LT(end - plan.start, field + kPageTokens);
    }
  }
}

TEST(LeadInTest, SurvivingLayersWidenNothing) {
  const Layout layout = MakeLayout({RetentionPolicy::Kind::kLayered, 0, 9, 2},
                                   std::vector<int64_t>(4, 0), kPageTokens);
  Survivors survivors;
  survivors.full_until[0] = 400;
  const LeadIn plan = PlanLeadIn(layout, 400, survivors);
  EXPECT_THAT(plan.store_begin, ::testing::ElementsAre(400, 400, 384, 392));
  EXPECT_THAT(plan.attend_begin, ::testing::ElementsAre(384, 384, 392, 400));
  EXPECT_EQ(plan.start, 384);
}

TEST(LeadInTest, EachLayerWidensTheFieldByItsOwnWindow) {
  const RetentionPolicy policy = {RetentionPolicy::Kind::kSlidingWindow, 2, 20};
  const std::vector<int64_t> windows = {7, 0, 7, 7};
  const LeadIn plan = PlanLeadIn(MakeLayout(policy, windows, kPageTokens), 400, {});
  // Whole pages at the top; then 19 and 6 positions more.
  EXPECT_THAT(plan.store_begin, ::testing::ElementsAre(361, 367, 386, 392));
  EXPECT_THAT(plan.attend_begin, ::testing::ElementsAre(367, 386, 392, 400));
}

TEST(ReceptiveFieldTest, IsWhatALeadInTakes) {
  for (int layers = 1; layers <= 5; ++layers) {
    for (int64_t window = 1; window <= 20; ++window) {
      Layout layout = MakeLayout({RetentionPolicy::Kind::kSlidingWindow, 2, window},
                                 std::vector<int64_t>(layers, 0), 4);
      const int64_t field = ReceptiveField(layout);
      for (int64_t end = field + 12; end < field + 40; end += 4) {
        if (end % 4 != 0) end += 4 - end % 4;
        EXPECT_LE(end - PlanLeadIn(layout, end, {}).start, field);
      }
      SetHistory(10, 3, &layout);
      EXPECT_GE(layout.lead_tokens, field + 4);
      EXPECT_EQ(layout.lead_tokens % 4, 0);
      EXPECT_GE(layout.keep_nodes * 4, layout.lead_tokens + 10);
    }
  }
}

class RecomputeTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSinks = 2, kWindow = 9, kLayers = 3;
  static constexpr int64_t kMost = kLayers * (kWindow - 1) + 2 * kPageTokens + kSinks + 2;

  static StoreOptions Options() {
    StoreOptions options = SmallOptions();
    options.pages = kLayers * 40;
    return options;
  }
  static RetentionPolicy Window(int64_t sinks = kSinks, int64_t window = kWindow) {
    return {RetentionPolicy::Kind::kSlidingWindow, sinks, window};
  }
};

TEST_F(RecomputeTest, OnlyTheReceptiveFieldWhateverTheChunk) {
  for (const int64_t sinks : {0, 2, 5}) {
    for (const int chunk : {1, 3, 4, 7, 64}) {
      KvHarness harness(Options());
      ASSERT_TRUE(harness.Create("a", Window(sinks)).ok());
      for (int turn = 0; turn < 30; ++turn) {
        ASSERT_TRUE(harness.Turn("a", SomeTokens(11, turn), 8).ok());
      }
      ASSERT_TRUE(harness.TakeAllPages().ok());
      EXPECT_EQ(harness.store().GetSession("p", "a")->resident_tokens, 0);
      ASSERT_TRUE(harness.Turn("a", SomeTokens(9, 99), chunk).ok());
      EXPECT_GE(harness.last_stats().recomputed_tokens, kLayers * (kWindow - 1));
      EXPECT_LE(harness.last_stats().recomputed_tokens, kMost + sinks);
      harness.Audit();
      // The next turn finds its window whole.
      ASSERT_TRUE(harness.Turn("a", SomeTokens(9, 100), chunk).ok());
      EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
      harness.Audit();
    }
  }
}

TEST_F(RecomputeTest, AnEditFarBackCostsTheSame) {
  KvHarness harness(Options());
  ASSERT_TRUE(harness.Create("a", Window()).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(900), 64).ok());
  for (const int64_t at : {899, 640, 333, 101}) {
    ASSERT_TRUE(harness.Turn("a", SomeTokens(900 - static_cast<int>(at), 5), 64, {}, at).ok());
    EXPECT_LE(harness.last_stats().recomputed_tokens, kMost) << at;
    harness.Audit();
  }
}

TEST_F(RecomputeTest, PagesStayWithinTheWindowAndTheChunk) {
  KvHarness harness(Options());
  ASSERT_TRUE(harness.Create("a", Window(0, 33)).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(400), 8).ok());
  ASSERT_TRUE(harness.TakeAllPages().ok());
  auto writer = harness.Admit("a");
  auto branch = *harness.store().Checkout(writer.get(), {});
  branch->Append(SomeTokens(20, 3));
  branch->MatchPrefix();
  const int64_t pages = (33 + kPageTokens - 1) / kPageTokens + 1 + 2;
  while (branch->computed() < branch->tokens()) {
    const int64_t count = std::min<int64_t>(8, branch->step_rows());
    ASSERT_TRUE(branch->Prepare(count).ok());
    for (const ops::LayerKv& layer : branch->layers()) EXPECT_LE(layer.page_count, pages);
    ASSERT_TRUE(harness.Compute(branch.get(), 8, branch->computed() + count).ok());
  }
}

TEST_F(RecomputeTest, FullLayersThatSurviveAreNotWritten) {
  KvHarness harness(Options());
  ASSERT_TRUE(harness.Create("a", {RetentionPolicy::Kind::kLayered, 2, 9, 1}).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(120), 16).ok());
  const auto pages_of = [&] {
    std::vector<std::pair<base::PageId, uint64_t>> pages;
    for (const Node* node : harness.audit().ResidentNodes()) {
      if (!node->pages[0] || node->index * harness.options().page_tokens >= 60) continue;
      const base::PageId page = node->pages[0].id();
      pages.push_back({page, harness.backend().PageChecksum(page, node->rows[0])});
    }
    return pages;
  };
  const auto before = pages_of();
  ASSERT_TRUE(harness.Turn("a", SomeTokens(40, 5), 7, {}, 60).ok());
  EXPECT_GE(harness.last_stats().recomputed_tokens, 2 * 8);
  EXPECT_LE(harness.last_stats().recomputed_tokens, 2 * 8 + 2 * kPageTokens + 2);
  EXPECT_THAT(pages_of(), ::testing::IsSupersetOf(before));
  harness.Audit();
}

// Lengths around the one at which the local layers lose sight of the sinks, and
// around those at which a window leaves them.
TEST_F(RecomputeTest, LocalLayersAtAnyLength) {
  for (const std::vector<int64_t>& windows :
       std::vector<std::vector<int64_t>>{{30, 0, 30}, {5, 5, 5}, {0, 11, 11}, {11, 0, 0}}) {
    StoreOptions options = Options();
    options.local_windows = windows;
    for (int length = 1; length < 70; ++length) {
      KvHarness harness(options);
      const RetentionPolicy policy = Window(length % 3 == 0 ? 6 : kSinks);
      ASSERT_TRUE(harness.Create("a", policy).ok());
      ASSERT_TRUE(harness.Turn("a", SomeTokens(length), 7).ok());
      ASSERT_TRUE(harness.TakeAllPages().ok());
      ASSERT_TRUE(harness.Turn("a", SomeTokens(3, 2), 1 + length % 5).ok());
      const int64_t field = (windows[0] > 0 ? std::min(windows[0], kWindow) : kWindow) - 1 +
                            (windows[1] > 0 ? std::min(windows[1], kWindow) : kWindow) - 1 +
                            (windows[2] > 0 ? std::min(windows[2], kWindow) : kWindow) - 1;
      EXPECT_LE(harness.last_stats().recomputed_tokens, field + 3 * kPageTokens + 8);
      EXPECT_GE(harness.last_stats().recomputed_tokens, std::min<int64_t>(length, field) - 3);
      harness.Audit();
      ASSERT_TRUE(harness.Turn("a", SomeTokens(3, 2), 2).ok());
      EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
      harness.Audit();
      if (HasFailure()) FAIL() << "length " << length << ", first window " << windows[0];
    }
  }
}

TEST_F(RecomputeTest, ADropInTheMiddleLeavesNothing) {
  KvHarness harness(Options());
  ASSERT_TRUE(harness.Create("a", Window()).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(300), 8).ok());
  ASSERT_TRUE(harness.TakeAllPages().ok());
  for (int64_t stop = 1; stop < 40; ++stop) {
    auto writer = harness.Admit("a");
    auto branch = *harness.store().Checkout(writer.get(), {});
    branch->Append(SomeTokens(7, 3));
    branch->MatchPrefix();
    for (int64_t i = 0; i < stop && branch->computed() < branch->tokens(); ++i) {
      ASSERT_TRUE(harness.Compute(branch.get(), 1, branch->computed() + 1).ok());
    }
    harness.Audit();
    branch.reset();
    writer.reset();
    harness.store().Maintain();
    harness.Audit();
    ASSERT_TRUE(harness.TakeAllPages().ok());
  }
}

}  // namespace
}  // namespace tokend::kv
