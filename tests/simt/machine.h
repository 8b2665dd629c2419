// One block at a time: its threads as fibers, its warps, its barrier. Internal.
#ifndef TOKEND_TESTS_SIMT_MACHINE_H_
#define TOKEND_TESTS_SIMT_MACHINE_H_

#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "tests/simt/control.h"
#include "tests/simt/fiber.h"
#include "tests/simt/simt.h"

namespace tokend::simt {

inline constexpr int kLanes = 32;
inline constexpr int kMaxThreads = 1024;
inline constexpr size_t kMaxSharedBytes = 227 * 1024;

enum class ThreadState { kReady, kAtWarpOp, kAtBlockBarrier, kExited };

struct PendingCopy {
  void* to;
  const void* from;
  bool valid;
  int group;
};

struct Thread {
  Fiber fiber;
  ThreadState state = ThreadState::kReady;
  Site site = {};       // where it waits
  uint64_t result = 0;  // of the warp operation that it waited for
  int vote = 0;         // at the block's barrier
  int copy_groups = 0;  // closed so far
  bool waited_for_previous_kernel = false;
  std::vector<PendingCopy> copies;  // not landed yet
};

// A warp operation that some of its lanes have reached.
struct PendingOp {
  WarpOp op;
  unsigned mask;
  Site site;
  unsigned arrived;
  uint64_t values[kLanes];
  int arguments[kLanes];
  int width;
};

struct Warp {
  unsigned ready = 0;
  unsigned alive = 0;
  int pending_count = 0;
  PendingOp pending[kLanes];
};

class Machine {
 public:
  static Machine& Get();

  // cudaSuccess, or cudaErrorLaunchFailure after a finding.
  cudaError_t RunKernel(const KernelCall& call);

  // For the running thread.
  int SyncBlock(BlockVote vote, int predicate, Site site);
  uint64_t SyncWarp(WarpOp op, unsigned mask, uint64_t value, int argument, int width, Site site);
  void* SharedAt(size_t byte_offset, size_t bytes, Site site);
  void CopyAsync(void* shared, const void* global, bool valid, Site site);
  void LandCopies(int pending);
  Thread& current() { return *threads_[static_cast<size_t>(current_)]; }
  int current_index() const { return current_; }
  unsigned alive_lanes() const { return warps_[current_ / kLanes].alive; }
  const KernelCall& call() const { return *call_; }
  bool running() const { return current_ >= 0; }

  // Ends the block with a finding; does not return to the kernel.
  [[noreturn]] void Fail(const std::string& what, Site site);
  // "kernel K, block (x, y, z), thread t".
  std::string Where() const;

  Schedule schedule;
  std::vector<std::string> findings;

 private:
  static void ThreadMain();
  void RunBlock(unsigned linear_block);
  void Prepare(unsigned threads);
  void ExitThread();
  void Wait(ThreadState state, Site site);
  void SwitchTo(int thread);
  int PickNext() const;
  int PickLane(unsigned ready) const;
  void Complete(Warp& warp, PendingOp& op);
  PendingOp& Arrive(Warp& warp, WarpOp op, unsigned mask, Site site);
  [[noreturn]] void Deadlock();
  std::string Waiting(ThreadState state) const;
  void FillShared();

  const KernelCall* call_ = nullptr;
  std::vector<std::unique_ptr<Thread>> threads_;
  Warp warps_[kMaxThreads / kLanes];
  unsigned ready_warps_ = 0;
  int thread_count_ = 0;
  int current_ = -1;
  int at_barrier_ = 0;
  int exited_ = 0;
  Site barrier_site_ = {};
  BlockVote barrier_vote_ = BlockVote::kNone;
  bool aborted_ = false;
  Fiber main_;
  std::unique_ptr<unsigned char[]> shared_storage_;
  unsigned char* shared_ = nullptr;
};

std::string ToString(Site site);

// The results of all lanes of `op`, by lane.
void Evaluate(const PendingOp& op, uint64_t (&results)[kLanes], bool split_mma_sums);

}  // namespace tokend::simt

#endif  // TOKEND_TESTS_SIMT_MACHINE_H_
