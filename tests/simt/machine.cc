#include "tests/simt/machine.h"

#include <cstdio>
#include <cstring>

#include "core/base/check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(TOKEND_SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace tokend::simt {
namespace {

// Every byte 0xff: a NaN in every float format, -1 in every integer.
constexpr int kPoison = 0xff;
constexpr size_t kSharedAlign = 128;
constexpr size_t kGuardBytes = 256;

}  // namespace

std::string ToString(Site site) {
  const char* slash = std::strrchr(site.file, '/');
  return std::string(slash != nullptr ? slash + 1 : site.file) + ":" + std::to_string(site.line);
}

Machine& Machine::Get() {
  static Machine* const machine = new Machine;  // fibers may outlive static destruction
  return *machine;
}

std::string Machine::Where() const {
  char text[160];
  std::snprintf(text, sizeof(text), "kernel %s, block (%u, %u, %u), thread %d", call_->name,
                blockIdx.x, blockIdx.y, blockIdx.z, current_);
  return text;
}

void Machine::Fail(const std::string& what, Site site) {
  TOKEND_CHECK(running());
  findings.push_back(Where() + " at " + ToString(site) + ": " + what);
  std::fprintf(stderr, "simt: %s\n", findings.back().c_str());
  aborted_ = true;
  Fiber::Switch(current().fiber, main_);
  TOKEND_CHECK(false);
  __builtin_unreachable();
}

void Machine::Prepare(unsigned threads) {
  if (shared_storage_ == nullptr) {
    shared_storage_.reset(new unsigned char[kSharedAlign + kMaxSharedBytes + kGuardBytes]);
    const auto address = reinterpret_cast<uintptr_t>(shared_storage_.get());
    shared_ = shared_storage_.get() + (kSharedAlign - address % kSharedAlign) % kSharedAlign;
  }
  while (threads_.size() < threads) {
    threads_.push_back(std::make_unique<Thread>());
    threads_.back()->fiber.Reset(&ThreadMain);
  }
  thread_count_ = static_cast<int>(threads);
}

void Machine::FillShared() {
  ASAN_UNPOISON_MEMORY_REGION(shared_, call_->shared_bytes);
  std::memset(shared_, kPoison, call_->shared_bytes);
  ASAN_POISON_MEMORY_REGION(shared_ + call_->shared_bytes,
                            kMaxSharedBytes + kGuardBytes - call_->shared_bytes);
}

cudaError_t Machine::RunKernel(const KernelCall& call) {
  const dim3 grid = call.grid;
  if (call.threads == 0 || call.threads > kMaxThreads || grid.x == 0 || grid.y == 0 ||
      grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  if (call.shared_bytes > kMaxSharedBytes) return cudaErrorInvalidValue;
  TOKEND_CHECK(!running());
  call_ = &call;
  gridDim = grid;
  blockDim = dim3(call.threads);
  Prepare(call.threads);
  const unsigned blocks = grid.x * grid.y * grid.z;
  const unsigned half = (blocks + 1) / 2;
  for (unsigned i = 0; i < blocks && !aborted_; ++i) {
    switch (schedule.blocks) {
      case Order::kAscending:
        RunBlock(i);
        break;
      case Order::kDescending:
        RunBlock(blocks - 1 - i);
        break;
      case Order::kInterleaved:
        RunBlock(i % 2 == 0 ? i / 2 : half + i / 2);
        break;
    }
  }
  call_ = nullptr;
  if (!aborted_) return cudaSuccess;
  aborted_ = false;
  for (auto& thread : threads_) thread->fiber.Reset(&ThreadMain);
  return cudaErrorLaunchFailure;
}

void Machine::RunBlock(unsigned linear_block) {
  blockIdx.x = linear_block % gridDim.x;
  blockIdx.y = linear_block / gridDim.x % gridDim.y;
  blockIdx.z = linear_block / gridDim.x / gridDim.y;
  for (int i = 0; i < thread_count_; ++i) {
    Thread& thread = *threads_[static_cast<size_t>(i)];
    thread.state = ThreadState::kReady;
    thread.copy_groups = 0;
    thread.waited_for_previous_kernel = false;
    thread.copies.clear();
  }
  ready_warps_ = 0;
  for (int w = 0; w * kLanes < thread_count_; ++w) {
    const int lanes = thread_count_ - w * kLanes;
    const unsigned mask = lanes >= kLanes ? ~0u : (1u << lanes) - 1;
    warps_[w].ready = warps_[w].alive = mask;
    warps_[w].pending_count = 0;
    ready_warps_ |= 1u << w;
  }
  at_barrier_ = exited_ = 0;
  FillShared();
  current_ = schedule.warps == Order::kDescending ? thread_count_ - 1 : 0;
  threadIdx = {static_cast<unsigned>(current_), 0, 0};
  Fiber::Switch(main_, current().fiber);
  current_ = -1;
}

void Machine::ThreadMain() {
  Machine& machine = Get();
  Fiber::Entered(machine.main_);
  for (;;) {
    const KernelCall& call = *machine.call_;
    call.run(call.kernel, call.params);
    machine.ExitThread();
  }
}

int Machine::PickLane(unsigned ready) const {
  return schedule.warps == Order::kDescending ? 31 - std::countl_zero(ready)
                                              : std::countr_zero(ready);
}

// The running warp goes on as long as one of its lanes can.
int Machine::PickNext() const {
  int w = current_ / kLanes;
  if (warps_[w].ready == 0) {
    if (ready_warps_ == 0) return -1;
    unsigned candidates = ready_warps_;
    if (schedule.warps == Order::kInterleaved) {
      const unsigned after = w == 31 ? 0 : candidates & (~0u << (w + 1));
      if (after != 0) candidates = after;
    }
    w = PickLane(candidates);
  }
  return w * kLanes + PickLane(warps_[w].ready);
}

void Machine::SwitchTo(int thread) {
  if (thread == current_) return;
  Fiber& from = current().fiber;
  current_ = thread;
  threadIdx.x = static_cast<unsigned>(thread);
  Fiber::Switch(from, current().fiber);
}

// Until somebody makes the thread ready again.
void Machine::Wait(ThreadState state, Site site) {
  Thread& thread = current();
  thread.state = state;
  thread.site = site;
  Warp& warp = warps_[current_ / kLanes];
  warp.ready &= ~(1u << current_ % kLanes);
  if (warp.ready == 0) ready_warps_ &= ~(1u << current_ / kLanes);
  const int next = PickNext();
  if (next < 0) Deadlock();
  SwitchTo(next);
}

void Machine::ExitThread() {
  Thread& thread = current();
  Warp& warp = warps_[current_ / kLanes];
  const unsigned bit = 1u << current_ % kLanes;
  if (call_->dependent && !thread.waited_for_previous_kernel) {
    Fail("exits a dependent launch without WaitForPreviousKernel()", {call_->name, 0});
  }
  for (int i = 0; i < warp.pending_count; ++i) {
    if ((warp.pending[i].mask & bit) != 0) {
      Fail("exits while its warp waits for it at " + ToString(warp.pending[i].site),
           {call_->name, 0});
    }
  }
  if (at_barrier_ > 0) {
    Fail("exits while others wait for it at the barrier " + ToString(barrier_site_),
         {call_->name, 0});
  }
  thread.state = ThreadState::kExited;
  warp.alive &= ~bit;
  warp.ready &= ~bit;
  if (warp.ready == 0) ready_warps_ &= ~(1u << current_ / kLanes);
  if (++exited_ == thread_count_) {
    Fiber::Switch(thread.fiber, main_);
    return;
  }
  const int next = PickNext();
  if (next < 0) Deadlock();
  SwitchTo(next);
}

int Machine::SyncBlock(BlockVote vote, int predicate, Site site) {
  if (exited_ > 0) Fail("barrier that some threads of the block never reach: they exited", site);
  if (at_barrier_ == 0) {
    barrier_site_ = site;
    barrier_vote_ = vote;
  } else if (!(barrier_site_ == site) || vote != barrier_vote_) {
    Fail("divergent barrier: others wait at " + ToString(barrier_site_), site);
  }
  current().vote = predicate != 0;
  if (++at_barrier_ < thread_count_) {
    Wait(ThreadState::kAtBlockBarrier, site);
    return current().vote;
  }
  at_barrier_ = 0;
  int count = 0;
  for (int i = 0; i < thread_count_; ++i) count += threads_[static_cast<size_t>(i)]->vote;
  int result = count;
  if (vote == BlockVote::kOr) result = count > 0;
  if (vote == BlockVote::kAnd) result = count == thread_count_;
  for (int i = 0; i < thread_count_; ++i) {
    threads_[static_cast<size_t>(i)]->vote = result;
    threads_[static_cast<size_t>(i)]->state = ThreadState::kReady;
  }
  for (int w = 0; w * kLanes < thread_count_; ++w) {
    warps_[w].ready = warps_[w].alive;
    ready_warps_ |= 1u << w;
  }
  // The first in order runs ahead, not the last to arrive.
  const int first_warp = PickLane(ready_warps_);
  SwitchTo(first_warp * kLanes + PickLane(warps_[first_warp].ready));
  return current().vote;
}

PendingOp& Machine::Arrive(Warp& warp, WarpOp op, unsigned mask, Site site) {
  const unsigned bit = 1u << current_ % kLanes;
  if ((mask & bit) == 0) Fail("the lane is not in the mask that it passes", site);
  if ((mask & ~warp.alive) != 0) Fail("the mask names a lane that has exited", site);
  for (int i = 0; i < warp.pending_count; ++i) {
    PendingOp& pending = warp.pending[i];
    if (pending.op != op || pending.mask != mask) continue;
    if (op != WarpOp::kSync && !(pending.site == site)) {
      Fail("divergent warp: others of the mask are at " + ToString(pending.site), site);
    }
    return pending;
  }
  PendingOp& pending = warp.pending[warp.pending_count++];
  pending.op = op;
  pending.mask = mask;
  pending.site = site;
  pending.arrived = 0;
  return pending;
}

uint64_t Machine::SyncWarp(WarpOp op, unsigned mask, uint64_t value, int argument, int width,
                           Site site) {
  Warp& warp = warps_[current_ / kLanes];
  const int lane = current_ % kLanes;
  PendingOp& pending = Arrive(warp, op, mask, site);
  pending.values[lane] = value;
  pending.arguments[lane] = argument;
  pending.width = width;
  pending.arrived |= 1u << lane;
  if (pending.arrived != mask) {
    Wait(ThreadState::kAtWarpOp, site);
    return current().result;
  }
  Complete(warp, pending);
  SwitchTo(current_ / kLanes * kLanes + PickLane(warp.ready));
  return current().result;
}

void Machine::Complete(Warp& warp, PendingOp& op) {
  const int base = current_ / kLanes * kLanes;
  if (op.op != WarpOp::kSync) {
    uint64_t results[kLanes];
    Evaluate(op, results, schedule.split_mma_sums);
    for (unsigned left = op.mask; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      threads_[static_cast<size_t>(base + lane)]->result = results[lane];
    }
  }
  for (unsigned left = op.mask; left != 0; left &= left - 1) {
    threads_[static_cast<size_t>(base + std::countr_zero(left))]->state = ThreadState::kReady;
  }
  warp.ready |= op.mask;
  ready_warps_ |= 1u << current_ / kLanes;
  PendingOp& last = warp.pending[--warp.pending_count];
  if (&last != &op) op = last;
}

void* Machine::SharedAt(size_t byte_offset, size_t bytes, Site site) {
  if (byte_offset > call_->shared_bytes || bytes > call_->shared_bytes - byte_offset) {
    Fail("shared memory [" + std::to_string(byte_offset) + ", +" + std::to_string(bytes) +
             ") is beyond the launch's " + std::to_string(call_->shared_bytes) + " bytes",
         site);
  }
  if (byte_offset % 16 != 0) Fail("shared memory offset is no multiple of 16", site);
  return shared_ + byte_offset;
}

void Machine::CopyAsync(void* shared, const void* global, bool valid, Site site) {
  const auto* to = static_cast<unsigned char*>(shared);
  if (to < shared_ || to + 16 > shared_ + call_->shared_bytes) {
    Fail("copies to what is not the block's shared memory", site);
  }
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 ||
      (valid && reinterpret_cast<uintptr_t>(global) % 16 != 0)) {
    Fail("an address of a 16-byte copy is no multiple of 16", site);
  }
  current().copies.push_back({shared, global, valid, current().copy_groups});
  if (!schedule.late_copies) {
    LandCopies(-1);
  } else {
    std::memset(shared, kPoison, 16);
  }
}

// All but those of the newest `pending` closed groups; open ones only with -1.
void Machine::LandCopies(int pending) {
  Thread& thread = current();
  const int until = pending < 0 ? thread.copy_groups + 1 : thread.copy_groups - pending;
  size_t landed = 0;
  for (; landed < thread.copies.size() && thread.copies[landed].group < until; ++landed) {
    const PendingCopy& copy = thread.copies[landed];
    if (copy.valid) {
      std::memcpy(copy.to, copy.from, 16);
    } else {
      std::memset(copy.to, 0, 16);
    }
  }
  thread.copies.erase(thread.copies.begin(),
                      thread.copies.begin() + static_cast<std::ptrdiff_t>(landed));
}

// "threads 0-31 at matmul.cu:12".
std::string Machine::Waiting(ThreadState state) const {
  std::string text;
  for (int i = 0; i < thread_count_; ++i) {
    const Thread& first = *threads_[static_cast<size_t>(i)];
    if (first.state != state) continue;
    int last = i;
    while (last + 1 < thread_count_) {
      const Thread& next = *threads_[static_cast<size_t>(last + 1)];
      if (next.state != state || (state != ThreadState::kExited && !(next.site == first.site))) {
        break;
      }
      ++last;
    }
    text += (text.empty() ? "threads " : ", ") + std::to_string(i) + "-" + std::to_string(last);
    if (state != ThreadState::kExited) text += " at " + ToString(first.site);
    i = last;
  }
  return text.empty() ? "none" : text;
}

void Machine::Deadlock() {
  Fail("deadlock; at the block's barrier: " + Waiting(ThreadState::kAtBlockBarrier) +
           "; at warp operations: " + Waiting(ThreadState::kAtWarpOp) +
           "; exited: " + Waiting(ThreadState::kExited),
       current().site);
}

}  // namespace tokend::simt
