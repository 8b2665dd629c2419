#include "core/cpu/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tokend::cpu {
namespace {

std::unique_ptr<ThreadPool> MakePool(int threads, absl::Duration spin = absl::Microseconds(100)) {
  ThreadPoolOptions options;
  options.threads = threads;
  options.spin = spin;
  return *ThreadPool::Create(options);
}

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, EveryChunkRunsOnce) {
  const std::unique_ptr<ThreadPool> pool = MakePool(GetParam());
  EXPECT_EQ(pool->threads(), GetParam());
  for (const int64_t chunks : {0, 1, 2, 3, 17, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(chunks));
    std::atomic<bool> bad_worker{false};
    pool->RunPhase(chunks, [&](int64_t chunk, int worker) {
      runs[static_cast<size_t>(chunk)].fetch_add(1);
      if (worker < 0 || worker >= GetParam()) bad_worker = true;
    });
    for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
    EXPECT_FALSE(bad_worker);
  }
}

// What a phase wrote without atomics is there for the caller and for the next
// phase, whoever runs it; a worker's scratch is used by one chunk at a time.
TEST_P(ThreadPoolTest, PhasesAreOrdered) {
  const std::unique_ptr<ThreadPool> pool = MakePool(GetParam());
  constexpr int64_t kChunks = 37;
  std::vector<int64_t> from(kChunks, 1), to(kChunks);
  std::vector<int64_t> scratch(static_cast<size_t>(GetParam()));
  for (int phase = 0; phase < 3000; ++phase) {
    pool->RunPhase(kChunks, [&](int64_t chunk, int worker) {
      int64_t& sum = scratch[static_cast<size_t>(worker)];
      sum = from[static_cast<size_t>(chunk)];
      sum += from[static_cast<size_t>((chunk + 1) % kChunks)];
      to[static_cast<size_t>(chunk)] = sum % 1'000'003;
    });
    ASSERT_EQ(*std::min_element(to.begin(), to.end()), *std::max_element(to.begin(), to.end()));
    from.swap(to);
  }
  int64_t want = 1;
  for (int phase = 0; phase < 3000; ++phase) want = want * 2 % 1'000'003;
  EXPECT_EQ(from[0], want);
}

// Phases of different sizes and functions at once after another, with pauses that
// let workers fall asleep at any point.
TEST_P(ThreadPoolTest, RandomPhases) {
  const auto seed = static_cast<uint64_t>(std::random_device()());
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const std::unique_ptr<ThreadPool> pool = MakePool(GetParam(), absl::Microseconds(20));
  for (int phase = 0; phase < 2000; ++phase) {
    const auto chunks = static_cast<int64_t>(random() % 20);
    std::vector<int64_t> values(static_cast<size_t>(chunks), -1);
    pool->RunPhase(chunks, [&values, phase](int64_t chunk, int) {
      values[static_cast<size_t>(chunk)] = chunk * phase;
    });
    for (int64_t i = 0; i < chunks; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i * phase);
    if (random() % 16 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    }
  }
}

TEST_P(ThreadPoolTest, ShutsDownAsleepAndAwake) {
  for (int round = 0; round < 50; ++round) {
    const std::unique_ptr<ThreadPool> pool = MakePool(GetParam(), absl::Microseconds(10));
    std::atomic<int> runs{0};
    if (round % 2 == 0) pool->RunPhase(8, [&](int64_t, int) { ++runs; });
    if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A phase with backups on plain memory: what it reads changes as soon as it ends.
struct BackupPhase {
  BackupPhase(int threads, int64_t chunks)
      : inputs(static_cast<size_t>(chunks)),
        outputs(static_cast<size_t>(chunks)),
        published(static_cast<size_t>(chunks)),
        workers(static_cast<size_t>(threads)) {}

  struct Worker {
    std::vector<int64_t> inputs;
    int64_t result = 0;
    std::minstd_rand random;
  };

  std::vector<int64_t> inputs, outputs;
  std::vector<int> published;
  std::atomic<bool> open{false};
  std::atomic<int> bad_calls{0};
  std::vector<Worker> workers;
  // Called in every Compute.
  void (*disturb)(BackupPhase* phase, int64_t chunk, int worker) = nullptr;
};

struct BackupJob {
  BackupPhase* phase;

  void Load(int worker) const {
    if (!phase->open) ++phase->bad_calls;
    phase->workers[static_cast<size_t>(worker)].inputs = phase->inputs;
  }
  void Compute(int64_t chunk, int worker) const {
    BackupPhase::Worker& self = phase->workers[static_cast<size_t>(worker)];
    if (phase->disturb != nullptr) phase->disturb(phase, chunk, worker);
    self.result = self.inputs[static_cast<size_t>(chunk)] * 3 + chunk;
  }
  void Publish(int64_t chunk, int worker) const {
    if (!phase->open) ++phase->bad_calls;
    phase->outputs[static_cast<size_t>(chunk)] = phase->workers[static_cast<size_t>(worker)].result;
    ++phase->published[static_cast<size_t>(chunk)];
  }
};

TEST_P(ThreadPoolTest, PhasesWithBackups) {
  const auto seed = static_cast<unsigned>(std::random_device()());
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  constexpr int64_t kChunks = 23;
  BackupPhase phase(GetParam(), kChunks);
  for (BackupPhase::Worker& worker : phase.workers) worker.random.seed(random());
  // Some chunks are as late as if their thread had lost its processor.
  phase.disturb = [](BackupPhase* of, int64_t, int worker) {
    if (of->workers[static_cast<size_t>(worker)].random() % 200 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  };
  const std::unique_ptr<ThreadPool> pool = MakePool(GetParam());
  for (int round = 1; round <= 1000; ++round) {
    const auto chunks = static_cast<int64_t>(random() % (kChunks + 1));
    for (int64_t& input : phase.inputs) input = round * 1000 + static_cast<int64_t>(random() % 999);
    phase.published.assign(kChunks, 0);
    phase.open = true;
    pool->RunPhaseWithBackups(chunks, BackupJob{&phase});
    phase.open = false;
    for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
      const auto i = static_cast<size_t>(chunk);
      ASSERT_EQ(phase.published[i], chunk < chunks ? 1 : 0);
      if (chunk < chunks) {
        ASSERT_EQ(phase.outputs[i], phase.inputs[i] * 3 + chunk);
      }
    }
    if (random() % 4 != 0) continue;
    std::atomic<int> plain{0};
    pool->RunPhase(5, [&](int64_t, int) { ++plain; });
    ASSERT_EQ(plain, 5);
  }
  EXPECT_EQ(phase.bad_calls, 0);
}

// Nobody takes what wakes the workers at the end for one more phase.
TEST_P(ThreadPoolTest, ShutsDownRightBehindAPhaseWithBackups) {
  constexpr int64_t kChunks = 2;
  for (int round = 0; round < 1000; ++round) {
    BackupPhase phase(GetParam(), kChunks);
    std::unique_ptr<ThreadPool> pool = MakePool(GetParam());
    phase.open = true;
    pool->RunPhaseWithBackups(kChunks, BackupJob{&phase});
    phase.open = false;
    pool.reset();
    ASSERT_EQ(phase.bad_calls, 0);
  }
}

TEST_P(ThreadPoolTest, MoreChunksThanHaveBackups) {
  const int64_t chunks = ThreadPool::kMaxBackupChunks + 1;
  BackupPhase phase(GetParam(), chunks);
  phase.open = true;
  MakePool(GetParam())->RunPhaseWithBackups(chunks, BackupJob{&phase});
  for (size_t i = 0; i < phase.outputs.size(); ++i) {
    ASSERT_EQ(phase.outputs[i], static_cast<int64_t>(i));
    ASSERT_EQ(phase.published[i], 1);
  }
  EXPECT_EQ(phase.bad_calls, 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

// A worker that stands still in the middle of a chunk holds up neither that phase
// nor those behind it, only who wants to take its memory away.
TEST(ThreadPoolBackupTest, NobodyWaitsForAStoppedThread) {
  static std::atomic<bool> stopped, go_on;
  stopped = go_on = false;
  BackupPhase phase(2, 8);
  phase.disturb = [](BackupPhase*, int64_t, int worker) {
    if (worker == 0) {
      // Leaves something for the other one.
      while (!stopped) std::this_thread::yield();
    } else {
      stopped = true;
      while (!go_on) std::this_thread::yield();
    }
  };
  {
    const std::unique_ptr<ThreadPool> pool = MakePool(2);
    for (int round = 0; round < 100; ++round) {
      for (int64_t& input : phase.inputs) input += round;
      phase.open = true;
      pool->RunPhaseWithBackups(8, BackupJob{&phase});
      phase.open = false;
      for (int64_t chunk = 0; chunk < 8; ++chunk) {
        const auto i = static_cast<size_t>(chunk);
        ASSERT_EQ(phase.outputs[i], phase.inputs[i] * 3 + chunk);
      }
    }
    EXPECT_TRUE(stopped);
    std::thread releaser([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      go_on = true;
    });
    pool->AwaitIdle();
    EXPECT_TRUE(go_on);
    releaser.join();
  }
  for (const int count : phase.published) EXPECT_EQ(count, 100);
  EXPECT_EQ(phase.bad_calls, 0);
}

TEST(ThreadPoolOptionsTest, RefusesBadThreadCounts) {
  for (const int threads : {-1, 0, 257}) {
    ThreadPoolOptions options;
    options.threads = threads;
    EXPECT_EQ(ThreadPool::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ThreadPoolOptionsTest, PinningNeverFails) {
  ThreadPoolOptions options;
  options.threads = 5;  // perhaps more than processors
  options.pin = true;
  absl::StatusOr<std::unique_ptr<ThreadPool>> pool = ThreadPool::Create(options);
  ASSERT_TRUE(pool.ok());
  std::atomic<int> runs{0};
  (*pool)->RunPhase(100, [&](int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 100);
}

double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(ThreadPoolIdleTest, SleepsWhenThereIsNothingToDo) {
  const std::unique_ptr<ThreadPool> pool = MakePool(4);
  pool->RunPhase(100, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double before = CpuSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  // Three spinning workers would take 0.5 s at least, on any number of processors.
  EXPECT_LT(CpuSeconds() - before, 0.05);
}

}  // namespace
}  // namespace tokend::cpu
