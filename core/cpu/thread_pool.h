#ifndef TOKEND_CORE_CPU_THREAD_POOL_H_
#define TOKEND_CORE_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tokend::cpu {

struct ThreadPoolOptions {
  int threads = 1;  // the caller of RunPhase included
  // Worker i on the i-th processor of the process's set, the caller left where it
  // is. May fail without harm.
  bool pin = false;
  // How long a worker looks for the next phase before it goes to sleep.
  absl::Duration spin = absl::Microseconds(100);
};

// Runs a step as a sequence of phases. One thread at a time calls RunPhase.
class ThreadPool {
 public:
  // INVALID_ARGUMENT: threads not in [1, 256]. RESOURCE_EXHAUSTED: the system
  // gives no more threads.
  static absl::StatusOr<std::unique_ptr<ThreadPool>> Create(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls fn(chunk, worker) once for each chunk in [0, chunks), `worker` in
  // [0, threads()), worker 0 being the caller. Chunks are handed out in order to
  // whoever is free. Returns when all are done; what they wrote is then visible
  // to the caller and to later phases. Less than 2^31 chunks.
  using ChunkFunction = absl::FunctionRef<void(int64_t chunk, int worker)>;
  void RunPhase(int64_t chunks, ChunkFunction fn);

 private:
  ThreadPool(int threads, absl::Duration spin) : threads_(threads), spin_(spin) {}

  void WorkerMain(int worker);
  // Runs one chunk of the phase that is open; false if none is left.
  bool RunOneChunk(int worker);
  // Returns once a phase with an epoch other than `epoch` is there.
  void AwaitPhase(uint32_t epoch);
  void Publish(uint32_t epoch, uint32_t first_chunk);
  uint32_t Epoch() const { return static_cast<uint32_t>(ticket_.load() >> 32); }

  // Instead of a chunk: none is to be had.
  static constexpr uint32_t kClosed = 0xffffffff;

  const int threads_;
  const absl::Duration spin_;

  // Epoch of the phase in the high half, its next free chunk in the low half. A
  // chunk is claimed by a compare-and-swap of the whole, which fails if what was
  // read of the phase belongs to an earlier one.
  alignas(64) std::atomic<uint64_t> ticket_{kClosed};
  // The phase. Written while the ticket is closed, read at any time.
  alignas(64) std::atomic<int64_t> chunks_{0};
  std::atomic<const ChunkFunction*> function_{nullptr};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<int64_t> done_{0};
  // Sleepers wait for wake_ to change.
  alignas(64) std::atomic<uint32_t> wake_{0};
  std::atomic<int> sleepers_{0};

  std::vector<std::thread> workers_;
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_THREAD_POOL_H_
