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
  // Thread i on the i-th processor of the process's set. May fail without harm.
  bool pin = false;
  // How long a thread looks for the next phase before it goes to sleep.
  absl::Duration spin = absl::Microseconds(100);
};

// Runs a step as a sequence of phases. One thread at a time calls Run*.
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
  // to the caller and to later phases.
  void RunPhase(int64_t chunks, absl::FunctionRef<void(int64_t chunk, int worker)> fn);

 private:
  explicit ThreadPool(int threads) : threads_(threads) {}

  const int threads_;
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_THREAD_POOL_H_
