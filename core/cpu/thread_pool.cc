#include "core/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace tokend::cpu {
namespace {

using SteadyClock = std::chrono::steady_clock;

// How long the caller spins for the last chunks before it lets others run.
constexpr std::chrono::microseconds kWaitSpin{20};

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
  if (options.threads < 1 || options.threads > 256) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads must be 1 to 256, not ", options.threads));
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

ThreadPool::~ThreadPool() {
  stop_.store(true);
  Publish(Epoch() + 1, kClosed);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunPhase(int64_t chunks, ChunkFunction fn) {
  TOKEND_CHECK(chunks >= 0 && chunks < int64_t{1} << 31);
  if (threads_ == 1 || chunks <= 1) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) fn(chunk, 0);
    return;
  }
  done_.store(0, std::memory_order_relaxed);
  function_.store(&fn, std::memory_order_relaxed);
  chunks_.store(chunks, std::memory_order_relaxed);
  Publish(Epoch() + 1, 0);
  while (RunOneChunk(0)) {
  }
  const auto finished = [&] { return done_.load(std::memory_order_acquire) == chunks; };
  while (!SpinUntil(finished, kWaitSpin)) std::this_thread::yield();
  // From here on nobody can claim anything by what is left of this phase.
  ticket_.store(static_cast<uint64_t>(Epoch()) << 32 | kClosed);
}

// The store and the load of sleepers_ on this side, the increment of sleepers_ and
// the load of ticket_ on the other, are sequentially consistent: one of the two
// sees the other.
void ThreadPool::Publish(uint32_t epoch, uint32_t first_chunk) {
  ticket_.store(static_cast<uint64_t>(epoch) << 32 | first_chunk);
  if (sleepers_.load() == 0) return;
  wake_.fetch_add(1);
  wake_.notify_all();
}

bool ThreadPool::RunOneChunk(int worker) {
  uint64_t ticket = ticket_.load();
  for (;;) {
    const auto chunk = static_cast<int64_t>(ticket & 0xffffffff);
    const ChunkFunction* function = function_.load(std::memory_order_relaxed);
    if (chunk >= chunks_.load(std::memory_order_relaxed)) return false;
    if (ticket_.compare_exchange_weak(ticket, ticket + 1)) {
      (*function)(chunk, worker);
      done_.fetch_add(1, std::memory_order_release);
      return true;
    }
  }
}

void ThreadPool::WorkerMain(int worker) {
  char name[16];  // the system's limit
  std::snprintf(name, sizeof(name), "tokend-cpu-%d", worker);
  pthread_setname_np(pthread_self(), name);
  for (uint32_t epoch = 0; !stop_.load();) {
    AwaitPhase(epoch);
    epoch = Epoch();
    while (!stop_.load(std::memory_order_relaxed) && RunOneChunk(worker)) {
    }
  }
}

void ThreadPool::AwaitPhase(uint32_t epoch) {
  const auto changed = [&] { return Epoch() != epoch; };
  while (!SpinUntil(changed, absl::ToChronoNanoseconds(spin_))) {
    const uint32_t wake = wake_.load();
    sleepers_.fetch_add(1);
    if (!changed()) wake_.wait(wake);
    sleepers_.fetch_sub(1);
  }
}

}  // namespace tokend::cpu
