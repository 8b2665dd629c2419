#ifndef TOKEND_CORE_CPU_THREAD_POOL_H_
#define TOKEND_CORE_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tokend::cpu {

inline constexpr int kMaxThreads = 256;

struct ThreadPoolOptions {
  int threads = 1;  // [1, kMaxThreads], the caller of RunPhase included
  // Worker i on the i-th processor of the process's set, the caller left where it
  // is. May fail without harm.
  bool pin = false;
  // How long a worker looks for the next phase before it goes to sleep.
  absl::Duration spin = absl::Microseconds(100);
};

// Runs a step as a sequence of phases. One thread at a time calls Run*.
class ThreadPool {
 public:
  // INVALID_ARGUMENT: threads not in [1, kMaxThreads]. RESOURCE_EXHAUSTED: the system
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

  // The same for work that may be done twice, so that a thread which the system
  // takes off its processor holds nobody up: who finds no chunk left computes
  // unfinished ones again, and the first result counts. Job has
  //   void Load(int worker) const;     copies what the phase reads and what may
  //                                    change after it into the worker's memory
  //   void Compute(int64_t chunk, int worker) const;   reads only the worker's
  //                                    memory and constants, writes only the former
  //   void Publish(int64_t chunk, int worker) const;   moves the result of the
  //                                    worker's latest Compute, of `chunk`, to where
  //                                    it is wanted; called once for each chunk
  // Each worker runs its own copy of `job`, Load before anything else. A Compute
  // may go on after the phase has ended, Load and Publish may not: AwaitIdle before
  // what it reads goes away. At most kMaxBackupChunks chunks have backups; with
  // more this is RunPhase.
  static constexpr int64_t kMaxBackupChunks = 4096;
  static constexpr size_t kMaxJobBytes = 256;
  template <class Job>
  void RunPhaseWithBackups(int64_t chunks, const Job& job) {
    static_assert(std::is_trivially_copyable_v<Job> && sizeof(Job) <= kMaxJobBytes);
    const JobType type = {
        sizeof(Job), [](const void* at, int worker) { static_cast<const Job*>(at)->Load(worker); },
        [](const void* at, int64_t chunk, int worker) {
          static_cast<const Job*>(at)->Compute(chunk, worker);
        },
        [](const void* at, int64_t chunk, int worker) {
          static_cast<const Job*>(at)->Publish(chunk, worker);
        }};
    RunJob(chunks, type, &job);
  }

  // Between phases: returns when no Compute goes on any more.
  void AwaitIdle() const;

 private:
  struct JobType {
    size_t bytes;
    void (*load)(const void* job, int worker);
    void (*compute)(const void* job, int64_t chunk, int worker);
    void (*publish)(const void* job, int64_t chunk, int worker);
  };
  // What a worker has of a phase with backups.
  struct alignas(64) Participant {
    // Epoch of the phase that is being loaded, else 0. The phase's caller does not
    // return while it is its own.
    std::atomic<uint64_t> loading{0};
    // From before a load until the worker is done with what it loaded.
    std::atomic<bool> busy{false};
    uint64_t epoch = 0;
    int64_t chunks = 0;
    JobType type = {};
    alignas(64) std::byte job[kMaxJobBytes];
  };

  ThreadPool(int threads, absl::Duration spin);

  void WorkerMain(int worker);
  // Returns once a phase with an epoch other than `epoch` is there.
  void AwaitPhase(uint32_t epoch);
  // Opens the phase that the members below describe; its epoch, which is known by
  // its low half where that is enough.
  uint64_t Open(int64_t chunks);
  void Close();
  bool IsOpen(uint32_t epoch) const;
  // Claims a chunk of that phase; -1 if none is left.
  int64_t Claim(uint32_t epoch);
  void RunChunks(uint32_t epoch, int worker);

  void RunJob(int64_t chunks, const JobType& type, const void* job);
  void RunJobOnce(int64_t chunks, const JobType& type, const void* job);
  // All that a worker other than the caller does in a phase.
  void WorkOnJob(uint32_t epoch, int worker);
  // False if the phase has ended.
  bool LoadJob(uint32_t epoch, int worker);
  void RunJobChunks(uint32_t epoch, int worker);
  void ComputeAndPublish(int64_t chunk, int worker);
  // Waits a little for the end of the phase that the worker has loaded, then
  // computes each chunk that others have claimed and not published.
  void Help(int worker);

  // Instead of a chunk: none is to be had.
  static constexpr uint32_t kClosed = 0xffffffff;

  const int threads_;
  const absl::Duration spin_;

  // Low half of the phase's epoch in the high half, its next free chunk in the low
  // half. A chunk is claimed by a compare-and-swap of the whole, which fails if
  // what was read of the phase belongs to an earlier one.
  alignas(64) std::atomic<uint64_t> ticket_{kClosed};
  // The phase. Written while the ticket is closed, read at any time.
  alignas(64) std::atomic<uint64_t> epoch_{0};
  std::atomic<int64_t> chunks_{0};
  std::atomic<const ChunkFunction*> function_{nullptr};  // nullptr: a job
  std::atomic<const JobType*> job_type_{nullptr};
  std::atomic<const void*> job_{nullptr};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<int64_t> done_{0};
  // Sleepers wait for wake_ to change.
  alignas(64) std::atomic<uint32_t> wake_{0};
  std::atomic<int> sleepers_{0};

  // Epoch of the latest phase that published the chunk. [kMaxBackupChunks]
  std::unique_ptr<std::atomic<uint64_t>[]> published_;
  std::unique_ptr<Participant[]> participants_;  // [threads]
  std::vector<std::thread> workers_;
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_THREAD_POOL_H_
