// Costs that must not grow, and chains that must not overflow a stack.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
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
    const int64_t count = std::min(chunk, branch->tokens() - branch->computed());
    ASSERT_TRUE(branch->Prepare(count).ok());
    branch->Advance(count);
  }
}

void Turn(SessionStore* store, absl::string_view id, const Tokens& input) {
  auto writer = store->Admit({.principal = "p", .session_id = std::string(id)});
  ASSERT_TRUE(writer.ok());
  auto branch = *store->Checkout(writer->get(), {});
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
  int64_t nodes = 0;
  int64_t pages = 0;

  bool operator==(const Cost&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Cost& cost) {
  return out << cost.allocations << " allocations, " << cost.nodes << " nodes, " << cost.pages
             << " pages";
}

// What `body` costs on a store with a session "a" of about `tokens` tokens in
// two turns, so that version 1 is some 40 tokens shorter.
Cost CostOf(int64_t tokens, const RetentionPolicy& policy,
            const std::function<void(KvHarness*)>& body) {
  StoreOptions options = SmallOptions();
  options.layers = 2;
  options.page_tokens = 16;
  options.pages = 2 * (tokens / 16 + 64);
  options.context_tokens = 1 << 20;
  KvHarness harness(options);
  EXPECT_TRUE(harness.Create("a", policy).ok());
  Turn(&harness.store(), "a", SomeTokens(static_cast<int>(tokens)));
  Turn(&harness.store(), "a", SomeTokens(39, 2));
  harness.store().Maintain();
  const int64_t nodes = harness.audit().nodes();
  const int64_t free = harness.store().Snapshot().pages.free;
  const int64_t before = allocations.load();
  body(&harness);
  Cost cost = {.allocations = allocations.load() - before};
  cost.nodes = harness.audit().nodes() - nodes;
  cost.pages = free - harness.store().Snapshot().pages.free;
  return cost;
}

TEST(ScaleTest, ForkRollbackAndCheckoutDoNotGrowWithTheContext) {
  const std::vector<std::pair<std::string, std::function<void(KvHarness*)>>> operations = {
      {"fork",
       [](KvHarness* harness) { EXPECT_TRUE(harness->store().Fork("p", "a", {}, "b", {}).ok()); }},
      {"fork of an older version",
       [](KvHarness* harness) { EXPECT_TRUE(harness->store().Fork("p", "a", 1, "b", {}).ok()); }},
      {"rollback",
       [](KvHarness* harness) { EXPECT_TRUE(harness->store().Rollback("p", "a", 1, {}).ok()); }},
      {"checkout",
       [](KvHarness* harness) {
         auto writer = harness->Admit("a");
         auto branch = harness->store().Checkout(writer.get(), {});
         EXPECT_TRUE(branch.ok());
       }},
  };
  for (const RetentionPolicy& policy :
       {RetentionPolicy{}, RetentionPolicy{RetentionPolicy::Kind::kSlidingWindow, 4, 50}}) {
    for (const auto& [name, operation] : operations) {
      EXPECT_EQ(CostOf(112, policy, operation), CostOf(100000, policy, operation)) << name;
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
