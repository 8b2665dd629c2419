// Costs that must not grow, and chains that must not overflow a stack.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/core/kv/kv_harness.h"

namespace {

std::atomic<int64_t> allocations{0};

void* Allocate(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

// GoogleTest and the store alike are counted; only differences mean something.
void* operator new(std::size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tokend::kv {
namespace {

// Steps without a model: what the store does is what is counted.
void Advance(Branch* branch, int64_t chunk) {
  while (branch->computed() < branch->tokens()) {
    const int64_t count = std::min(chunk, branch->step_rows());
    ASSERT_TRUE(branch->Prepare(count).ok());
    branch->Advance(count);
  }
}

void Turn(SessionStore* store, absl::string_view id, const Tokens& input,
          std::optional<int64_t> from_position = std::nullopt) {
  auto writer = store->Admit({.principal = "p", .session_id = std::string(id)});
  ASSERT_TRUE(writer.ok());
  auto branch = *store->Checkout(writer->get(), from_position);
  branch->Append(input);
  branch->MatchPrefix();
  Advance(branch.get(), 4096);
  const int64_t tokens = branch->tokens();
  ASSERT_TRUE(store->Commit(writer->get(), std::move(branch), {.tokens = tokens}).ok());
}

// On a stack of 256 KiB, as little as a service thread may have.
void OnSmallStack(std::function<void()> body) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* run) -> void* {
                  (*static_cast<std::function<void()>*>(run))();
                  return nullptr;
                },
                &body),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

struct Cost {
  int64_t allocations = 0;
  int64_t touched = 0;  // nodes
  int64_t nodes = 0;
  int64_t pages = 0;

  bool operator==(const Cost&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Cost& cost) {
  return out << cost.allocations << " allocations, " << cost.touched << " nodes touched, "
             << cost.nodes << " made, " << cost.pages << " pages";
}

using Body = std::function<void(KvHarness*)>;

// How a store comes to its session "a" of about `tokens` tokens in two versions.
struct Story {
  std::string name;
  std::function<void(KvHarness*, int tokens)> run;
  bool half_retired = false;
};

// Takes all pages but those of `spared` nodes for a moment.
void PushOut(KvHarness* harness, int64_t spared) {
  const StoreOptions& options = harness->options();
  const int64_t tokens = (options.pages / options.layers - spared) * options.page_tokens;
  auto branch = harness->store().CheckoutEphemeral("q");
  branch->Append(SomeTokens(static_cast<int>(tokens), 3));
  ASSERT_TRUE(branch->Prepare(tokens).ok());
}

void Continued(KvHarness* harness, int tokens) {
  Turn(&harness->store(), "a", SomeTokens(tokens));
  Turn(&harness->store(), "a", SomeTokens(39, 2));
}

// The second version has no node of the first.
void EditedAtZero(KvHarness* harness, int tokens) {
  Turn(&harness->store(), "a", SomeTokens(tokens));
  Turn(&harness->store(), "a", SomeTokens(tokens + 39, 2), 0);
}

std::vector<Story> Stories() {
  const auto pushed_out = [](auto make, auto spared) {
    return [=](KvHarness* harness, int tokens) {
      make(harness, tokens);
      PushOut(harness, spared(tokens));
    };
  };
  const auto none = [](int) { return 0; };
  const auto half = [](int tokens) { return tokens / 32; };
  return {{"continued", Continued},
          {"continued, retired", pushed_out(Continued, none)},
          {"continued, half retired", pushed_out(Continued, half), true},
          {"edited at 0", EditedAtZero},
          {"edited at 0, retired", pushed_out(EditedAtZero, none)},
          {"edited at 0, half retired", pushed_out(EditedAtZero, half), true}};
}

Cost CostOf(int tokens, const RetentionPolicy& policy, const Story& story, const Body& body) {
  StoreOptions options = SmallOptions();
  options.layers = 2;
  options.page_tokens = 16;
  options.pages = 2 * (2 * tokens / 16 + 64);
  options.context_tokens = 1 << 20;
  KvHarness harness(options);
  EXPECT_TRUE(harness.Create("a", policy).ok());
  story.run(&harness, tokens);
  harness.store().Maintain();
  const int64_t nodes = harness.audit().nodes();
  const int64_t free = harness.store().Snapshot().pages.free;
  const int64_t touched = harness.audit().touched();
  const int64_t before = allocations.load();
  body(&harness);
  // Nothing is left for others to do.
  harness.store().Maintain();
  Cost cost = {.allocations = allocations.load() - before,
               .touched = harness.audit().touched() - touched};
  cost.nodes = harness.audit().nodes() - nodes;
  cost.pages = free - harness.store().Snapshot().pages.free;
  return cost;
}

// Tokens; they end alike within pages and epochs.
constexpr int kShort = 112, kLong = 100016;

const std::vector<RetentionPolicy>& Policies() {
  using Kind = RetentionPolicy::Kind;
  static const auto* const policies =
      new std::vector<RetentionPolicy>{{},
                                       {Kind::kSlidingWindow, 4, 50},
                                       {Kind::kLayered, 4, 50, 1},
                                       {Kind::kHeavyHitters, 4, 50, 0, 2, 32}};
  return *policies;
}

TEST(ScaleTest, SessionCallsDoNotGrowWithTheContext) {
  const std::vector<std::pair<std::string, Body>> operations = {
      {"fork", [](KvHarness* h) { EXPECT_TRUE(h->store().Fork("p", "a", {}, "b", {}).ok()); }},
      {"fork of an older version",
       [](KvHarness* h) { EXPECT_TRUE(h->store().Fork("p", "a", 1, "b", {}).ok()); }},
      {"fork of a fork",
       [](KvHarness* h) {
         EXPECT_TRUE(h->store().Fork("p", "a", 1, "b", {}).ok());
         EXPECT_TRUE(h->store().Fork("p", "b", {}, "c", {}).ok());
       }},
      {"rollback", [](KvHarness* h) { EXPECT_TRUE(h->store().Rollback("p", "a", 1, {}).ok()); }},
      {"rollback and back",
       [](KvHarness* h) {
         EXPECT_TRUE(h->store().Rollback("p", "a", 1, {}).ok());
         EXPECT_TRUE(h->store().Rollback("p", "a", 2, {}).ok());
       }},
      {"get", [](KvHarness* h) { EXPECT_TRUE(h->store().GetSession("p", "a").ok()); }},
      {"list", [](KvHarness* h) { EXPECT_EQ(h->store().ListSessions("p", "", 10).size(), 1); }},
      {"list versions",
       [](KvHarness* h) { EXPECT_EQ(h->store().ListVersions("p", "a", {}, 10)->size(), 2); }},
      {"checkout",
       [](KvHarness* h) {
         auto writer = h->Admit("a");
         auto branch = h->store().Checkout(writer.get(), {});
         EXPECT_TRUE(branch.ok());
       }},
  };
  for (const RetentionPolicy& policy : Policies()) {
    for (const Story& story : Stories()) {
      // Where no layer sees all, KV does not grow: half of it is another story at each length.
      const bool grows = policy.window_tokens == 0 || policy.full_layers > 0;
      if (story.half_retired && !grows) continue;
      for (const auto& [name, operation] : operations) {
        const Cost cost = CostOf(kShort, policy, story, operation);
        EXPECT_EQ(cost, CostOf(kLong, policy, story, operation))
            << name << ", " << story.name << ", policy " << static_cast<int>(policy.kind);
        EXPECT_LE(cost.pages, 0);
        EXPECT_EQ(cost.nodes, 0);
      }
    }
  }
}

// A cut in the middle is found by jumps, at most some two a bit of its distance.
TEST(ScaleTest, ACutTakesTheLogarithmOfItsDistance) {
  const auto cut = [](KvHarness* h) {
    EXPECT_TRUE(h->store().Fork("p", "a", {}, "b", 33).ok());
    auto writer = h->Admit("a");
    EXPECT_TRUE(h->store().Checkout(writer.get(), 33).ok());
  };
  for (const RetentionPolicy& policy : Policies()) {
    for (const Story& story : Stories()) {
      const Cost small = CostOf(kShort, policy, story, cut);
      const Cost large = CostOf(kLong, policy, story, cut);
      EXPECT_EQ(small.allocations, large.allocations) << story.name;
      EXPECT_LE(large.touched - small.touched, 2 * 2 * 13) << story.name;
    }
  }
}

// Nor does a turn's start depend on it where a session's KV is there, or all gone.
TEST(ScaleTest, AMatchTakesTheLogarithmOfTheContext) {
  const auto match = [](KvHarness* h) {
    auto writer = h->Admit("a");
    auto branch = *h->store().Checkout(writer.get(), {});
    branch->Append({1});
    branch->MatchPrefix();
  };
  for (const RetentionPolicy& policy : Policies()) {
    for (const Story& story : Stories()) {
      const Cost small = CostOf(kShort, policy, story, match);
      const Cost large = CostOf(kLong, policy, story, match);
      EXPECT_LE(large.touched - small.touched, 6 * 2 * 13) << story.name;
      EXPECT_LE(large.allocations - small.allocations, 4) << story.name;
    }
  }
}

TEST(ScaleTest, ADecodeStepTakesNoPageWithinItsPage) {
  KvHarness harness;
  auto branch = harness.store().CheckoutEphemeral("p");
  branch->Append(SomeTokens(5));
  branch->MatchPrefix();
  Advance(branch.get(), 5);
  branch->Append({1, 2});
  const int64_t free = harness.store().Snapshot().pages.free;
  const int64_t before = allocations.load();
  ASSERT_TRUE(branch->Prepare(1).ok());
  branch->Advance(1);
  ASSERT_TRUE(branch->Prepare(1).ok());
  branch->Advance(1);
  EXPECT_EQ(allocations.load(), before);
  EXPECT_EQ(harness.store().Snapshot().pages.free, free);
}

TEST(ScaleTest, AMillionNodesAreReleasedWithoutRecursion) {
  constexpr int kNodes = 1000000;
  StoreOptions options;
  options.layers = 1;
  options.page_tokens = 1;
  options.pages = kNodes + 16;
  options.context_tokens = 2 * kNodes;
  testing::FakeBackend backend({});
  auto store = *SessionStore::Create(options, &backend, base::RealClock(), base::NullObserver());
  ASSERT_TRUE(store->CreateSession("p", "a", {}).ok());
  ASSERT_TRUE(store->CreateSession("p", "b", {}).ok());
  const Tokens tokens = SomeTokens(kNodes);
  Turn(store.get(), "a", tokens);
  StoreAudit audit(store.get());
  EXPECT_EQ(audit.nodes(), kNodes);
  EXPECT_EQ(store->Snapshot().pages.private_pages, kNodes);
  OnSmallStack([&] { ASSERT_TRUE(store->DeleteSession("p", "a", {}, false).ok()); });
  OnSmallStack([&] { store->Maintain(); });
  EXPECT_EQ(store->Snapshot().pages.cached, kNodes) << "the prefix cache";
  // Another branch's pages push the chain out.
  OnSmallStack([&] {
    auto branch = store->CheckoutEphemeral("p");
    branch->Append(SomeTokens(kNodes + 16, 2));
    ASSERT_TRUE(branch->Prepare(kNodes + 16).ok());
  });
  store->Maintain();
  EXPECT_EQ(store->Snapshot().pages.free, options.pages);
  EXPECT_EQ(audit.nodes(), 0);

  // Tokens without KV.
  {
    auto writer = *store->Admit({.principal = "p", .session_id = "b"});
    auto branch = *store->Checkout(writer.get(), {});
    branch->Append(tokens);
    ASSERT_TRUE(store->Commit(writer.get(), std::move(branch), {.tokens = kNodes}).ok());
  }
  EXPECT_EQ(audit.nodes(), kNodes);
  EXPECT_EQ(store->ReadTokens("p", "b", {}, 500000, 3)->tokens,
            Tokens(tokens.begin() + 500000, tokens.begin() + 500003));
  OnSmallStack([&] {
    ASSERT_TRUE(store->DeleteSession("p", "b", {}, false).ok());
    store->Maintain();
  });
  EXPECT_EQ(audit.nodes(), 0);
}

TEST(ScaleTest, AMillionNodesDieWithTheStore) {
  StoreOptions options;
  options.layers = 1;
  options.page_tokens = 1;
  options.pages = 1000;
  options.context_tokens = 2000000;
  testing::FakeBackend backend({});
  auto store = *SessionStore::Create(options, &backend, base::RealClock(), base::NullObserver());
  ASSERT_TRUE(store->CreateSession("p", "a", {}).ok());
  auto writer = *store->Admit({.principal = "p", .session_id = "a"});
  auto branch = *store->Checkout(writer.get(), {});
  branch->Append(SomeTokens(1000000));
  ASSERT_TRUE(store->Commit(writer.get(), std::move(branch), {.tokens = 1000000}).ok());
  writer.reset();
  OnSmallStack([&] { store.reset(); });
}

TEST(ScaleTest, ForksFiftyDeep) {
  StoreOptions options = SmallOptions();
  options.pages = 3 * 400;
  KvHarness harness(options);
  ASSERT_TRUE(harness.Create("0").ok());
  Tokens want;
  for (int depth = 0; depth < 50; ++depth) {
    const std::string id = absl::StrCat(depth);
    ASSERT_TRUE(harness.Turn(id, SomeTokens(5, depth)).ok());
    EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
    want = Concat(want, SomeTokens(5, depth));
    ASSERT_TRUE(harness.store().Fork("p", id, {}, absl::StrCat(depth + 1), {}).ok());
    // And a sibling that goes its own way.
    if (depth % 5 == 0) {
      const std::string sibling = absl::StrCat("s", depth);
      ASSERT_TRUE(harness.store().Fork("p", id, {}, sibling, {}).ok());
      ASSERT_TRUE(harness.Turn(sibling, SomeTokens(3, 99)).ok());
    }
  }
  harness.Audit();
  EXPECT_EQ(harness.Read("50"), want);
  for (int depth = 0; depth < 50; ++depth) {
    ASSERT_TRUE(harness.store().DeleteSession("p", absl::StrCat(depth), {}, false).ok());
    if (depth % 10 == 0) harness.store().Maintain();
    EXPECT_EQ(harness.Read("50"), want);
  }
  harness.Audit();
  ASSERT_TRUE(harness.Turn("50", {1}).ok());
  EXPECT_EQ(harness.last_stats().recomputed_tokens, 0);
}

TEST(ScaleTest, TenThousandDropsLeaveNothing) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(11)).ok());
  std::minstd_rand random(1);
  for (int i = 0; i < 10000; ++i) {
    auto writer = harness.Admit("a");
    auto branch = *harness.store().Checkout(writer.get(), {});
    branch->Append(SomeTokens(1 + static_cast<int>(random() % 12), static_cast<int>(random() % 9)));
    if (random() % 8 != 0) branch->MatchPrefix();
    for (int steps = static_cast<int>(random() % 4); steps > 0; --steps) {
      if (branch->computed() == branch->tokens()) break;
      const int64_t left = branch->tokens() - branch->computed();
      ASSERT_TRUE(branch->Prepare(1 + static_cast<int64_t>(random() % left)).ok());
      if (random() % 4 != 0) branch->Advance(1);
    }
    branch.reset();
    writer.reset();
    if (random() % 3 == 0) harness.store().Maintain();
  }
  harness.store().Maintain();
  const PageCounts pages = harness.store().Snapshot().pages;
  EXPECT_EQ(pages.private_pages, 3 * 3);
  EXPECT_EQ(pages.shared, 0);
  EXPECT_EQ(harness.Read("a"), SomeTokens(11));
  EXPECT_LE(harness.audit().nodes(), 3 + pages.cached / 3);
}

}  // namespace
}  // namespace tokend::kv
