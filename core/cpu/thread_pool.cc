#include "core/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/error.h"

namespace tokend::cpu {
namespace {

using SteadyClock = std::chrono::steady_clock;

// How long the caller spins for the last chunks before it lets others run.
constexpr std::chrono::microseconds kWaitSpin{20};
// How late the last chunks of a phase may be before others compute them too.
constexpr std::chrono::microseconds kBackupDelay{5};

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Spins until `ready` or until `limit` is over; whether it is ready.
template <class Ready>
bool SpinUntil(Ready ready, SteadyClock::duration limit) {
  const auto start = SteadyClock::now();
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      Pause();
    }
  } while (SteadyClock::now() - start < limit);
  return ready();
}

void PinTo(std::thread* thread, int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || seen++ != index) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(thread->native_handle(), sizeof(one), &one);
    return;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ThreadPool>> ThreadPool::Create(const ThreadPoolOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return base::InvalidField("threads",
                              absl::StrCat(options.threads, " is not in [1, ", kMaxThreads, "]"));
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool(options.threads, options.spin));
  for (int i = 1; i < options.threads; ++i) {
    try {
      pool->workers_.emplace_back([p = pool.get(), i] { p->WorkerMain(i); });
    } catch (const std::system_error&) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the system gives no more than ", i, " of ", options.threads, " threads"));
    }
    if (options.pin) PinTo(&pool->workers_.back(), i);
  }
  return pool;
}

ThreadPool::ThreadPool(int threads, absl::Duration spin)
    : threads_(threads),
      spin_(spin),
      published_(new std::atomic<uint64_t>[kMaxBackupChunks]()),
      participants_(new Participant[static_cast<size_t>(threads)]) {}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  // A phase of no chunks, to wake everyone.
  Open(0);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunPhase(int64_t chunks, ChunkFunction fn) {
  TOKEND_CHECK(chunks >= 0 && chunks < int64_t{1} << 31);
  if (threads_ == 1 || chunks <= 1) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) fn(chunk, 0);
    return;
  }
  function_.store(&fn, std::memory_order_relaxed);
  const auto epoch = static_cast<uint32_t>(Open(chunks));
  RunChunks(epoch, 0);
  const auto finished = [&] { return done_.load(std::memory_order_acquire) == chunks; };
  while (!SpinUntil(finished, kWaitSpin)) std::this_thread::yield();
  Close();
}

// The store to ticket_ and the load of sleepers_ on this side, the increment of
// sleepers_ and the load of ticket_ on the other, are sequentially consistent: one
// of the two sees the other.
uint64_t ThreadPool::Open(int64_t chunks) {
  const uint64_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  done_.store(0, std::memory_order_relaxed);
  chunks_.store(chunks, std::memory_order_relaxed);
  epoch_.store(epoch, std::memory_order_relaxed);
  ticket_.store(epoch << 32);
  if (sleepers_.load() != 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  return epoch;
}

// From here on nobody can claim or load anything of this phase.
void ThreadPool::Close() { ticket_.store(ticket_.load() | kClosed); }

int64_t ThreadPool::Claim(uint32_t epoch) {
  uint64_t ticket = ticket_.load();
  for (;;) {
    const auto chunk = static_cast<int64_t>(ticket & kClosed);
    if (ticket >> 32 != epoch || chunk >= chunks_.load(std::memory_order_relaxed)) return -1;
    if (ticket_.compare_exchange_weak(ticket, ticket + 1)) return chunk;
  }
}

bool ThreadPool::IsOpen(uint32_t epoch) const {
  const uint64_t ticket = ticket_.load();
  return ticket >> 32 == epoch && (ticket & kClosed) != kClosed;
}

// A function that was read before a successful claim is that of the claim's phase,
// which then stays open until the chunk is done.
void ThreadPool::RunChunks(uint32_t epoch, int worker) {
  const ChunkFunction* function = function_.load(std::memory_order_relaxed);
  for (int64_t chunk = Claim(epoch); chunk >= 0; chunk = Claim(epoch)) {
    (*function)(chunk, worker);
    done_.fetch_add(1, std::memory_order_release);
  }
}

void ThreadPool::WorkerMain(int worker) {
  char name[16];  // the system's limit
  std::snprintf(name, sizeof(name), "tokend-cpu-%d", worker);
  pthread_setname_np(pthread_self(), name);
  for (uint32_t seen = 0;;) {
    AwaitPhase(seen);
    // In this order: the last phase is never run, nothing of it is there.
    seen = static_cast<uint32_t>(ticket_.load() >> 32);
    if (stop_.load()) return;
    if (function_.load(std::memory_order_relaxed) != nullptr) {
      RunChunks(seen, worker);
    } else {
      WorkOnJob(seen, worker);
    }
  }
}

void ThreadPool::WorkOnJob(uint32_t epoch, int worker) {
  std::atomic<bool>& busy = participants_[static_cast<size_t>(worker)].busy;
  busy.store(true, std::memory_order_relaxed);  // LoadJob's stores come after it
  if (LoadJob(epoch, worker)) {
    RunJobChunks(epoch, worker);
    Help(worker);
  }
  busy.store(false, std::memory_order_release);
}

// The ticket is closed: a worker that is not seen busy here finds that when it loads.
void ThreadPool::AwaitIdle() const {
  for (int worker = 1; worker < threads_; ++worker) {
    const std::atomic<bool>& busy = participants_[static_cast<size_t>(worker)].busy;
    while (!SpinUntil([&] { return !busy.load(); }, kWaitSpin)) std::this_thread::yield();
  }
}

void ThreadPool::AwaitPhase(uint32_t epoch) {
  const auto changed = [&] { return static_cast<uint32_t>(ticket_.load() >> 32) != epoch; };
  while (!SpinUntil(changed, absl::ToChronoNanoseconds(spin_))) {
    const uint32_t wake = wake_.load();
    sleepers_.fetch_add(1);
    if (!changed()) wake_.wait(wake);
    sleepers_.fetch_sub(1);
  }
}

void ThreadPool::RunJob(int64_t chunks, const JobType& type, const void* job) {
  if (threads_ == 1 || chunks <= 1 || chunks > kMaxBackupChunks) {
    return RunJobOnce(chunks, type, job);
  }
  function_.store(nullptr, std::memory_order_relaxed);
  job_type_.store(&type, std::memory_order_relaxed);
  job_.store(job, std::memory_order_relaxed);
  const uint64_t epoch = Open(chunks);
  LoadJob(static_cast<uint32_t>(epoch), 0);
  RunJobChunks(static_cast<uint32_t>(epoch), 0);
  while (done_.load(std::memory_order_acquire) != chunks) Help(0);
  Close();
  for (int worker = 1; worker < threads_; ++worker) {
    const std::atomic<uint64_t>& loading = participants_[static_cast<size_t>(worker)].loading;
    while (!SpinUntil([&] { return loading.load() != epoch; }, kWaitSpin)) {
      std::this_thread::yield();
    }
  }
}

// Without backups. The caller's memory outlasts the phase.
void ThreadPool::RunJobOnce(int64_t chunks, const JobType& type, const void* job) {
  std::vector<char> loaded(static_cast<size_t>(threads_), 0);
  RunPhase(chunks, [&](int64_t chunk, int worker) {
    if (loaded[static_cast<size_t>(worker)] == 0) type.load(job, worker);
    loaded[static_cast<size_t>(worker)] = 1;
    type.compute(job, chunk, worker);
    type.publish(job, chunk, worker);
  });
}

// Between its two stores to `loading` the phase cannot end: either its caller sees
// the first one or the check behind it sees the closed ticket.
bool ThreadPool::LoadJob(uint32_t epoch, int worker) {
  Participant& self = participants_[static_cast<size_t>(worker)];
  self.epoch = epoch_.load(std::memory_order_relaxed);
  self.loading.store(self.epoch);
  const bool open = IsOpen(epoch) && static_cast<uint32_t>(self.epoch) == epoch;
  if (open) {
    self.chunks = chunks_.load(std::memory_order_relaxed);
    self.type = *job_type_.load(std::memory_order_relaxed);
    std::memcpy(self.job, job_.load(std::memory_order_relaxed), self.type.bytes);
    self.type.load(self.job, worker);
  }
  self.loading.store(0);
  return open;
}

void ThreadPool::RunJobChunks(uint32_t epoch, int worker) {
  for (int64_t chunk = Claim(epoch); chunk >= 0; chunk = Claim(epoch)) {
    ComputeAndPublish(chunk, worker);
  }
}

void ThreadPool::ComputeAndPublish(int64_t chunk, int worker) {
  const Participant& self = participants_[static_cast<size_t>(worker)];
  self.type.compute(self.job, chunk, worker);
  std::atomic<uint64_t>& published = published_[static_cast<size_t>(chunk)];
  uint64_t seen = published.load();
  // A phase ends when all its chunks are published, so after its end `seen` is at
  // least its epoch.
  if (seen >= self.epoch || !published.compare_exchange_strong(seen, self.epoch)) return;
  self.type.publish(self.job, chunk, worker);
  done_.fetch_add(1, std::memory_order_release);
}

void ThreadPool::Help(int worker) {
  const Participant& self = participants_[static_cast<size_t>(worker)];
  const auto epoch = static_cast<uint32_t>(self.epoch);
  const auto ended = [&] {
    return !IsOpen(epoch) || done_.load(std::memory_order_acquire) == self.chunks;
  };
  if (SpinUntil(ended, kBackupDelay)) return;
  // Helpers start at different places.
  int64_t chunk = self.chunks * worker / threads_;
  bool helped = false;
  for (int64_t i = 0; i < self.chunks; ++i, chunk = (chunk + 1) % self.chunks) {
    if (published_[static_cast<size_t>(chunk)].load() >= self.epoch) continue;
    if (ended()) return;
    ComputeAndPublish(chunk, worker);
    helped = true;
  }
  // What is left is being published by a thread that may have lost its processor.
  if (!helped) std::this_thread::yield();
}

}  // namespace tokend::cpu
