// Session operations from many threads while the engine's runs turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/mutex.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

// The token of a position is its number, whatever the session: any slice that
// anyone reads can be checked.
Tokens Counting(int64_t begin, int64_t count) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>((begin + i) % kVocabulary));
  }
  return tokens;
}

// Writers that clients admitted and that the engine runs.
class Inbox {
 public:
  void Put(std::unique_ptr<Writer> writer) {
    base::MutexLock lock(&mu_);
    writers_.push_back(std::move(writer));
  }
  std::vector<std::unique_ptr<Writer>> TakeAll() {
    base::MutexLock lock(&mu_);
    return std::exchange(writers_, {});
  }

 private:
  base::Mutex mu_;
  std::vector<std::unique_ptr<Writer>> writers_ ABSL_GUARDED_BY(mu_);
};

void RunClient(SessionStore* store, Inbox* inbox, int seed) {
  std::minstd_rand random(static_cast<uint32_t>(seed + 1));
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  const auto name = [&] { return absl::StrCat("s", below(6)); };
  for (int i = 0; i < 1500; ++i) {
    const std::string id = name();
    switch (below(9)) {
      case 0: {
        RetentionPolicy policy;
        if (below(2) == 0) policy = {RetentionPolicy::Kind::kSlidingWindow, 3, 9};
        (void)store->CreateSession("p", id, {.retention = policy});
        break;
      }
      case 1:
        (void)store->Fork("p", id, {}, name(), {});
        break;
      case 2:
        (void)store->Rollback("p", id, 1 + below(4), {});
        break;
      case 3:
        if (below(4) == 0) (void)store->DeleteSession("p", id, {}, false);
        break;
      case 4: {
        auto slice = store->ReadTokens("p", id, {}, {}, 1000);
        EXPECT_TRUE(!slice.ok() || slice->tokens == Counting(0, slice->total_tokens));
        break;
      }
      case 5: {
        const PageCounts pages = store->Snapshot().pages;
        EXPECT_EQ(pages.free + pages.cached + pages.private_pages + pages.shared + pages.pinned,
                  pages.total);
        EXPECT_GE(pages.private_pages, 0);
        break;
      }
      case 6:
        (void)store->GetSession("p", id);
        (void)store->ListVersions("p", id, {}, 5);
        (void)store->ListSessions("p", "", 10);
        break;
      default: {
        auto writer = store->Admit({.principal = "p",
                                    .session_id = id,
                                    .allow_missing = below(3) == 0,
                                    .on_conflict = static_cast<WriteIntent::OnConflict>(below(3))});
        // Some give up at once, on this thread.
        if (writer.ok() && below(4) != 0) inbox->Put(*std::move(writer));
        break;
      }
    }
  }
}

// Runs a turn as the engine does, unless the session is gone.
void RunTurn(KvHarness* harness, Writer* writer, std::minstd_rand* random) {
  auto branch = harness->store().Checkout(writer, {});
  if (!branch.ok()) return;
  const int64_t base = (*branch)->base_tokens();
  (*branch)->Append(Counting(base, 1 + static_cast<int64_t>((*random)() % 9)));
  (*branch)->MatchPrefix();
  const absl::Status status = harness->Compute(branch->get(), 3);
  EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
  if (!status.ok() || (*random)() % 4 == 0) return;
  const int64_t tokens = (*branch)->tokens();
  auto version = harness->store().Commit(writer, *std::move(branch), {.tokens = tokens});
  EXPECT_TRUE(version.ok() || absl::IsAborted(version.status())) << version.status();
}

TEST(ThreadsTest, ClientsAndEngineAtOnce) {
  StoreOptions options = SmallOptions();
  options.pages = 3 * 60;
  options.max_versions = 3;
  KvHarness harness(options);
  Inbox inbox;
  std::atomic<int> running{7};
  std::vector<std::thread> clients;
  for (int i = 0; i < 7; ++i) {
    clients.emplace_back([&, i] {
      RunClient(&harness.store(), &inbox, i);
      running.fetch_sub(1);
    });
  }
  std::minstd_rand random(99);
  std::vector<std::unique_ptr<Writer>> waiting;
  int turns = 0;
  while (running.load() > 0 || !waiting.empty()) {
    for (std::unique_ptr<Writer>& writer : inbox.TakeAll()) waiting.push_back(std::move(writer));
    for (size_t i = 0; i < waiting.size();) {
      if (!waiting[i]->ready()) {
        ++i;
        continue;
      }
      RunTurn(&harness, waiting[i].get(), &random);
      waiting.erase(waiting.begin() + static_cast<int64_t>(i));
      ++turns;
    }
    harness.store().Maintain();
    std::this_thread::yield();
  }
  for (std::thread& client : clients) client.join();
  inbox.TakeAll().clear();
  harness.store().Maintain();
  EXPECT_GT(turns, 100);
  harness.Audit();
}

}  // namespace
}  // namespace tokend::kv
