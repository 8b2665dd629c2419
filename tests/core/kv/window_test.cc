// Windows: a mask that frees what it hides, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/kv/layout.h"
#include "core/kv/policy.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

constexpr int64_t kPageTokens = 4;

int64_t Pages(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

RetentionPolicy Window(int64_t sinks, int64_t window) {
  return {RetentionPolicy::Kind::kSlidingWindow, sinks, window};
}

// All policies of a kind with few tokens, in a layer with each local window.
template <typename Fn>
void ForSmallMasks(Fn fn) {
  for (int64_t local = 0; local < 24; ++local) {
    fn(RetentionPolicy{}, local);
    for (int64_t sinks = 0; sinks < 10; ++sinks) {
      for (int64_t window = 1; window < 14; ++window) fn(Window(sinks, window), local);
    }
  }
}

TEST(PolicyTest, AMaskHidesWhatThePolicyOrTheLayerHides) {
  ForSmallMasks([](const RetentionPolicy& policy, int64_t local) {
    const ops::AttentionMask mask = policy.Mask(0, local);
    const bool full = policy.kind == RetentionPolicy::Kind::kFull;
    const int64_t sinks = policy.sink_tokens, window = policy.window_tokens;
    for (int64_t p = 0; p < 60; ++p) {
      for (int64_t q = 0; q < 60; ++q) {
        const bool kept = full || q < sinks || q > p - window;
        const bool near = local == 0 || q > p - local;
        ASSERT_EQ(mask.Sees(p, q), q <= p && kept && near);
        if (!mask.Sees(p, q)) continue;
        const int64_t from = !full && q < sinks ? std::min(p, sinks + window - 1) : p;
        ASSERT_EQ(q < mask.SinkEnd() ? mask.SinkPosition(p) : p, from);
      }
    }
  });
}

TEST(PolicyTest, ReachableIsWhatALaterQuerySees) {
  ForSmallMasks([](const RetentionPolicy& policy, int64_t local) {
    const ops::AttentionMask mask = policy.Mask(0, local);
    for (int64_t position = 0; position < 60; ++position) {
      const ReachablePages reach = Reachable(mask, position, kPageTokens);
      bool sinks_seen = false;
      for (int64_t q = 0; q < mask.SinkEnd(); ++q) sinks_seen |= mask.Sees(position, q);
      for (int64_t page = 0; page < Pages(position); ++page) {
        bool seen = false;
        for (int64_t q = page * 4; q < std::min(position, page * 4 + 4); ++q) {
          // What no query at `position` sees, none later will.
          seen = seen || mask.Sees(position, q);
        }
        const bool kept = page < reach.sink_pages || page >= reach.first_page;
        ASSERT_TRUE(kept || !seen);
        // Nothing more is kept, but where the window touches the sinks' pages, and
        // all of those as long as one is seen.
        if (reach.first_page > 0) {
          const bool sink = page < Pages(mask.SinkEnd()) && sinks_seen;
          ASSERT_EQ(kept, seen || sink || page == position / 4) << page;
        }
      }
      ASSERT_TRUE(reach.sink_pages == 0 || reach.sink_pages < reach.first_page);
    }
  });
}

TEST(PolicyTest, HiddenIsWhatNoLayerSees) {
  ForSmallMasks([](RetentionPolicy policy, int64_t local) {
    if (policy.kind != RetentionPolicy::Kind::kFull && local % 2 == 0) {
      policy.kind = RetentionPolicy::Kind::kLayered;
      policy.full_layers = 1;
    }
    const std::vector<int64_t> windows = {local, local / 3 % 2 * local, local};
    const Layout layout = MakeLayout(policy, windows, kPageTokens);
    for (int64_t position = 0; position < 60; ++position) {
      int64_t hidden = 0;
      for (int64_t q = 0; q < position; ++q) {
        hidden +=
            std::none_of(layout.groups.begin(), layout.groups.end(),
                         [&](const LayerGroup& group) { return group.mask.Sees(position, q); });
      }
      ASSERT_EQ(HiddenPositions(layout, position), hidden);
    }
  });
}

TEST(PolicyTest, LayersHaveTheirOwnMasks) {
  const RetentionPolicy policy = {RetentionPolicy::Kind::kLayered, 2, 6, 1};
  EXPECT_EQ(policy.Mask(0, 0), (ops::AttentionMask{}));
  EXPECT_EQ(policy.Mask(1, 0), (ops::AttentionMask{2, 6}));
  EXPECT_EQ(policy.Mask(0, 6), (ops::AttentionMask{0, 6}));
  EXPECT_EQ(policy.Mask(1, 6), (ops::AttentionMask{0, 6}));
  EXPECT_EQ(policy.Mask(1, 7), (ops::AttentionMask{2, 6, 7}));
}

TEST(PolicyTest, Limits) {
  EXPECT_TRUE(ValidateRetention({}, 100, 3, 4).ok());
  EXPECT_TRUE(ValidateRetention(Window(99, 1), 100, 3, 4).ok());
  EXPECT_TRUE(ValidateRetention(Window(0, 100), 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention(Window(-1, 10), 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention(Window(100, 1), 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention(Window(1, 100), 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention(Window(0, 0), 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention({RetentionPolicy::Kind::kLayered, 0, 9, 0}, 100, 3, 4).ok());
  EXPECT_FALSE(ValidateRetention({RetentionPolicy::Kind::kLayered, 0, 9, 3}, 100, 3, 4).ok());
}

TEST(WindowTest, LocalWindowsHaveOneWidth) {
  StoreOptions options = SmallOptions();
  testing::FakeBackend backend({.layers = 3, .page_tokens = 4, .vocabulary_size = kVocabulary});
  for (const std::vector<int64_t>& windows :
       std::vector<std::vector<int64_t>>{{5, 6, 0}, {5, 5}, {0, -1, 0}, {0, 0, 0, 0}}) {
    options.local_windows = windows;
    EXPECT_FALSE(
        SessionStore::Create(options, &backend, base::RealClock(), base::NullObserver()).ok());
  }
}

TEST(WindowTest, PagesStayWithinTheirBound) {
  for (const auto& [sinks, window] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {0, 8}, {4, 16}, {3, 9}, {5, 1}, {1, 13}}) {
    for (int chunk : {1, 3, 4, 9, 30}) {
      KvHarness harness;
      ASSERT_TRUE(harness.Create("a", Window(sinks, window)).ok());
      const int64_t rest = Pages(sinks) + Pages(window) + 1;
      for (int turn = 0; turn < 8; ++turn) {
        auto writer = harness.Admit("a");
        auto branch = *harness.store().Checkout(writer.get(), {});
        branch->Append(SomeTokens(11 + turn, turn));
        branch->MatchPrefix();
        while (branch->computed() < branch->tokens()) {
          const int64_t count = std::min<int64_t>(chunk, branch->tokens() - branch->computed());
          ASSERT_TRUE(branch->Prepare(count).ok());
          for (const ops::LayerKv& layer : branch->layers()) {
            EXPECT_LE(layer.page_count, rest + Pages(chunk));
          }
          ASSERT_TRUE(harness.Compute(branch.get(), chunk, branch->computed() + count).ok());
        }
        const int64_t tokens = branch->tokens();
        ASSERT_TRUE(
            harness.store().Commit(writer.get(), std::move(branch), {.tokens = tokens}).ok());
        writer.reset();
        harness.store().Maintain();
        harness.Audit();
        for (int layer = 0; layer < 3; ++layer) {
          EXPECT_LE(harness.audit().HeadPages("p", "a", layer), rest);
        }
      }
    }
  }
}

TEST(WindowTest, PagesOutsideAreFreed) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a", Window(4, 8)).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(100), 5).ok());
  harness.store().Maintain();
  const PageCounts pages = harness.store().Snapshot().pages;
  EXPECT_LE(pages.total - pages.free, 3 * (1 + 2 + 1));
  EXPECT_GT(harness.observer().evicted[base::EvictionCause::kWindow], 3 * 20);
  EXPECT_EQ(harness.last_stats().evicted_tokens, 100 - 8 + 1 - 4);
  harness.Audit();
}

TEST(WindowTest, TwoHundredTurnsPastTheWindow) {
  StoreOptions options = SmallOptions();
  options.max_versions = 2;
  options.pages = 3 * 16;
  KvHarness harness(options);
  ASSERT_TRUE(harness.Create("a", Window(4, 12)).ok());
  Tokens want;
  for (int turn = 0; turn < 200; ++turn) {
    const Tokens input = SomeTokens(3 + turn % 7, turn);
    auto version = harness.Turn("a", input, 4);
    ASSERT_TRUE(version.ok()) << version.status();
    want = Concat(want, input);
    harness.store().Maintain();
    EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
    const PageCounts pages = harness.store().Snapshot().pages;
    EXPECT_LE(pages.private_pages + pages.shared, 3 * (1 + 3 + 1));
    if (turn % 20 == 0) harness.Audit();
  }
  EXPECT_EQ(harness.Read("a"), want);
}

TEST(WindowTest, ACutAfterALongTurnFindsItsWindow) {
  // A stop string takes back a few tokens, up to a page's worth.
  for (int64_t back = 0; back <= kPageTokens; ++back) {
    KvHarness harness;
    ASSERT_TRUE(harness.Create("a", Window(2, 10)).ok());
    ASSERT_TRUE(harness.Turn("a", SomeTokens(53), 1, 53 - back).ok());
    harness.Audit();
    ASSERT_TRUE(harness.Turn("a", SomeTokens(5, 2)).ok());
    EXPECT_EQ(harness.last_stats().recomputed_tokens, 0) << back;
    harness.Audit();
  }
}

TEST(WindowTest, ADropOrAnEditFindsTheBaseWindowStillThere) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a", Window(2, 10)).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(40)).ok());
  {
    auto writer = harness.Admit("a");
    auto branch = *harness.store().Checkout(writer.get(), {});
    branch->Append(SomeTokens(50, 3));
    branch->MatchPrefix();
    ASSERT_TRUE(harness.Compute(branch.get(), 6).ok());
    harness.Audit();
  }
  harness.store().Maintain();
  harness.Audit();
  ASSERT_TRUE(harness.Turn("a", SomeTokens(9, 4)).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
  // An older version keeps its window while no one needs the pages.
  ASSERT_TRUE(harness.store().Rollback("p", "a", 1, {}).ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(9, 5)).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
  // Far before the head the window is gone: computed again from the start.
  ASSERT_TRUE(harness.Turn("a", SomeTokens(9, 6), 64, {}, 20).ok());
  EXPECT_GT(harness.last_stats().recomputed_tokens, 0);
  harness.Audit();
}

TEST(WindowTest, LayersKeepWhatTheirOwnMaskReaches) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a", {RetentionPolicy::Kind::kLayered, 4, 8, 1}).ok());
  for (int turn = 0; turn < 6; ++turn) {
    ASSERT_TRUE(harness.Turn("a", SomeTokens(13, turn), 5).ok());
    EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
    harness.store().Maintain();
    harness.Audit();
  }
  EXPECT_EQ(harness.audit().HeadPages("p", "a", 0), Pages(6 * 13));
  EXPECT_LE(harness.audit().HeadPages("p", "a", 1), 1 + 2 + 1);
  EXPECT_LE(harness.audit().HeadPages("p", "a", 2), 1 + 2 + 1);
}

// Logits of the last of `tokens` in a session of its own.
std::vector<float> LastLogits(const StoreOptions& options, const RetentionPolicy& policy,
                              const Tokens& tokens) {
  KvHarness harness(options);
  std::vector<float> logits;
  harness.backend().on_logits = [&](int64_t, uint64_t, absl::Span<float> row) {
    logits.assign(row.begin(), row.end());
  };
  EXPECT_TRUE(harness.Create("a", policy).ok());
  EXPECT_TRUE(harness.Turn("a", tokens, 7).ok());
  harness.Audit();
  return logits;
}

// A local layer in front of a global one: what it no longer reaches, the global one
// still sees; what no layer reaches, however far, does not matter.
TEST(WindowTest, AFactOutsideTheLocalWindowIsStillSeenByGlobalLayers) {
  StoreOptions options = SmallOptions();
  options.local_windows = {5, 0, 5};
  const RetentionPolicy window = Window(2, 20);
  const RetentionPolicy layered = {RetentionPolicy::Kind::kLayered, 2, 20, 2};
  const Tokens tokens = SomeTokens(100);
  const auto differs = [&](const StoreOptions& store, const RetentionPolicy& policy, int64_t at) {
    Tokens other = tokens;
    other[at] = (other[at] + 1) % kVocabulary;
    return LastLogits(store, policy, other) != LastLogits(store, policy, tokens);
  };
  // Of the last position, 99: the local layers reach back to 91, with the global
  // one of 20 tokens between them to 72, and before that there are its sinks.
  for (const int64_t at : {99, 92, 90, 80, 72, 1, 0}) EXPECT_TRUE(differs(options, window, at));
  for (const int64_t at : {71, 50, 2}) EXPECT_FALSE(differs(options, window, at));
  // Full in the first two layers: what is behind the window, the global one sees.
  for (const int64_t at : {71, 50, 2, 0}) EXPECT_TRUE(differs(options, layered, at));
  options.local_windows = {5, 5, 5};
  for (const int64_t at : {99, 87}) EXPECT_TRUE(differs(options, {}, at));
  for (const int64_t at : {86, 50, 0}) {
    EXPECT_FALSE(differs(options, {}, at));
    EXPECT_FALSE(differs(options, window, at));
    EXPECT_FALSE(differs(options, layered, at));
  }
}

TEST(WindowTest, LocalLayersKeepTheirOwnWindow) {
  StoreOptions options = SmallOptions();
  options.local_windows = {0, 9, 9};
  KvHarness harness(options);
  ASSERT_TRUE(harness.Create("full").ok());
  ASSERT_TRUE(harness.Create("window", Window(2, 24)).ok());
  for (int turn = 0; turn < 6; ++turn) {
    for (const absl::string_view id : {"full", "window"}) {
      ASSERT_TRUE(harness.Turn(id, SomeTokens(13, turn), 5).ok());
      EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
      harness.store().Maintain();
      harness.Audit();
    }
  }
  EXPECT_EQ(harness.audit().HeadPages("p", "full", 0), Pages(6 * 13));
  EXPECT_LE(harness.audit().HeadPages("p", "window", 0), 1 + 6 + 1);
  for (const absl::string_view id : {"full", "window"}) {
    EXPECT_LE(harness.audit().HeadPages("p", id, 1), Pages(9) + 1);
    EXPECT_LE(harness.audit().HeadPages("p", id, 2), Pages(9) + 1);
  }
}

TEST(WindowTest, AStreamOfManyTurnsCostsTheSameEachTurn) {
  StoreOptions options = SmallOptions();
  options.pages = 3 * 20;
  KvHarness harness(options);
  ASSERT_TRUE(harness.Create("a", Window(4, 16)).ok());
  int64_t rows = 0;
  for (int turn = 0; turn < 2500; ++turn) {
    auto writer = harness.Admit("a");
    auto branch = *harness.store().Checkout(writer.get(), {});
    branch->Append(SomeTokens(8, turn));
    branch->MatchPrefix();
    EXPECT_EQ(branch->tokens() - branch->computed(), 8);
    while (branch->computed() < branch->tokens()) {
      const int64_t at = branch->computed();
      ASSERT_TRUE(branch->Prepare(4).ok());
      Tokens tokens;
      branch->ReadTokens(at, at + 4, &tokens);
      const ops::StepSequence sequence = {.rows = 4, .position = at, .layers = branch->layers()};
      ASSERT_TRUE(harness.tags()
                      .Forward({.tokens = tokens, .sequences = absl::MakeConstSpan(&sequence, 1)})
                      .ok());
      branch->Advance(4);
    }
    const int64_t tokens = branch->tokens();
    ASSERT_TRUE(harness.store().Commit(writer.get(), std::move(branch), {.tokens = tokens}).ok());
    writer.reset();
    harness.store().Maintain();
    rows += 8;
  }
  EXPECT_EQ(harness.backend().rows(), rows);
  EXPECT_EQ(harness.store().GetSession("p", "a")->tokens, 20000);
  EXPECT_EQ(harness.store().GetSession("p", "a")->first_position, 0);
  EXPECT_LE(harness.audit().nodes(), 20000 / kPageTokens + 16);
}

}  // namespace
}  // namespace tokend::kv
