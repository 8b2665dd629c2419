// One block at a time: its threads as fibers, its warps, its barrier. Internal.
#ifndef TOKEND_TESTS_SIMT_MACHINE_H_
#define TOKEND_TESTS_SIMT_MACHINE_H_

#include <bit>
#include <cstdarg>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/simt/block_memory.h"
#include "tests/simt/control.h"
#include "tests/simt/fiber.h"
#include "tests/simt/shadow.h"
#include "tests/simt/simt.h"

namespace tokend::simt {

inline constexpr int kLanes = 32;
inline constexpr int kMaxThreads = 1024;

// "matmul.cu:12", the file without its folder.
struct SiteText {
  char text[160];
};
SiteText ToString(Site site);

// TOKEND_SIMT_SCHEDULE: words of warps=, blocks= (ascending, descending, interleaved),
// copies=, streams= (early, late), mma= (one, split), with commas.
Schedule ScheduleFromEnvironment();

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

// The barriers that ran, and those that are left out as a test of the tests.
class Barriers {
 public:
  Barriers();

  // False: the barrier does nothing.
  bool Reached(const char* kind, Site site) { return !watched_ || Watch(kind, site); }
  void Drop(const std::vector<std::string>& sites);

 private:
  bool Watch(const char* kind, Site site);

  bool watched_ = false;
  std::string record_to_;          // file for "kind file:line", one a line
  std::set<std::string> reached_;  // likewise
  std::set<std::string> dropped_;  // "file:line"
};

class Machine {
 public:
  static Machine& Get() { return machine_ != nullptr ? *machine_ : Create(); }

  // What a device refuses at the launch itself.
  static cudaError_t Validate(const KernelCall& call);
  // cudaSuccess, or cudaErrorLaunchFailure after a finding. Of a valid call.
  cudaError_t RunKernel(const KernelCall& call);

  // For the running thread.
  [[gnu::always_inline]] inline int SyncBlock(BlockVote vote, int predicate, Site site);
  [[gnu::always_inline]] inline uint64_t SyncWarp(WarpOp op, unsigned mask, uint64_t value,
                                                  int argument, int width, Site site);
  void* SharedAt(size_t byte_offset, size_t bytes, Site site);
  void CopyAsync(void* shared, const void* global, bool valid, Site site);
  void WaitForCopies(int pending, Site site);
  Thread& current() { return threads_[current_]; }
  int current_index() const { return current_; }
  BlockMemory& shared() { return shared_; }
  unsigned alive_lanes() const { return warps_[current_ / kLanes].alive; }
  const KernelCall& call() const { return *call_; }
  bool running() const { return current_ >= 0; }

  // Ends the block with a finding; does not return to the kernel.
  [[noreturn, gnu::format(printf, 3, 4)]] void Fail(Site site, const char* format, ...);

  Schedule schedule = ScheduleFromEnvironment();
  MmaFault mma_fault = MmaFault::kNone;
  std::string mma_fault_kernel;
  std::vector<std::string> findings;
  Barriers barriers;

 private:
  static Machine& Create();
  static void ThreadMain();
  void RunBlock(unsigned linear_block);
  void Prepare(unsigned threads);
  void ExitThread();
  // Inlined up to what kernels call: on a new stack the processor mispredicts each return.
  [[gnu::always_inline]] inline void Wait(ThreadState state, Site site);
  [[gnu::always_inline]] inline void SwitchTo(int thread);
  int PickNext() const;
  int PickLane(unsigned ready) const;
  void Complete(Warp& warp, PendingOp& op);
  static void Land(const PendingCopy& copy);
  MmaFault CurrentMmaFault() const;
  PendingOp& Arrive(Warp& warp, WarpOp op, unsigned mask, Site site);
  [[noreturn]] void Deadlock();
  void AppendWaiting(ThreadState state, std::string& text) const;
  // Adds a finding; what runs goes on.
  [[gnu::format(printf, 3, 4)]] void Note(Site site, const char* format, ...);
  void NoteV(Site site, const char* format, va_list arguments);

  static inline Machine* machine_ = nullptr;  // never deleted: fibers may outlive statics

  const KernelCall* call_ = nullptr;
  std::unique_ptr<Thread[]> threads_;  // [kMaxThreads]
  Warp warps_[kMaxThreads / kLanes];
  unsigned ready_warps_ = 0;
  int prepared_ = 0;  // threads whose fiber has a stack
  int thread_count_ = 0;
  int current_ = -1;
  int at_barrier_ = 0;
  int exited_ = 0;
  Site barrier_site_ = {};
  BlockVote barrier_vote_ = BlockVote::kNone;
  bool aborted_ = false;
  Fiber main_;
  BlockMemory shared_;
  std::string waiting_;
};

// Of a shuffle: a lane that reads from one that the mask does not name, or -1.
int LaneThatReadsOutside(const PendingOp& op);

// The results of all lanes of `op`, by lane.
void Evaluate(const PendingOp& op, bool split_mma_sums, MmaFault fault,
              uint64_t (&results)[kLanes]);

}  // namespace tokend::simt

#endif  // TOKEND_TESTS_SIMT_MACHINE_H_
