#include "tests/simt/machine.h"

#include <cstring>

#include "core/base/check.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace tokend::simt {
Machine& Machine::Create() {
  machine_ = new Machine;
  return *machine_;
}

void Machine::Prepare(unsigned threads) {
  if (threads_ == nullptr) threads_ = std::make_unique<Thread[]>(kMaxThreads);
  while (prepared_ < static_cast<int>(threads)) threads_[prepared_++].fiber.Reset(&ThreadMain);
  thread_count_ = static_cast<int>(threads);
}

cudaError_t Machine::Validate(const KernelCall& call) {
  const dim3 grid = call.grid;
  if (call.threads == 0 || call.threads > kMaxThreads || grid.x == 0 || grid.y == 0 ||
      grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  return call.shared_bytes > kMaxSharedBytes ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t Machine::RunKernel(const KernelCall& call) {
  const dim3 grid = call.grid;
  TOKEND_CHECK(!running());
  call_ = &call;
  gridDim = grid;
  blockDim = dim3(call.threads);
  Prepare(call.threads);
  const unsigned blocks = grid.x * grid.y * grid.z;
  const unsigned half = (blocks + 1) / 2;
  Shadow::Get().BeginLaunch(blocks);
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
  for (int i = 0; i < prepared_; ++i) threads_[i].fiber.Reset(&ThreadMain);
  return cudaErrorLaunchFailure;
}

void Machine::RunBlock(unsigned linear_block) {
  blockIdx.x = linear_block % gridDim.x;
  blockIdx.y = linear_block / gridDim.x % gridDim.y;
  blockIdx.z = linear_block / gridDim.x / gridDim.y;
  for (int i = 0; i < thread_count_; ++i) {
    Thread& thread = threads_[i];
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
  shared_.BeginBlock(call_->shared_bytes);
  Shadow::Get().BeginBlock(linear_block);
  current_ = schedule.warps == Order::kDescending ? thread_count_ - 1 : 0;
  threadIdx = {static_cast<unsigned>(current_), 0, 0};
  Fiber::Switch(main_, current().fiber);
  if (!aborted_) {
    const size_t stray = shared_.StrayWrite();
    if (stray != 0)
      Note({call_->name, 0}, "a thread wrote behind shared memory, at byte %zu", stray);
  }
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
    Fail({call_->name, 0}, "exits a dependent launch without WaitForPreviousKernel()");
  }
  for (int i = 0; i < warp.pending_count; ++i) {
    if ((warp.pending[i].mask & bit) != 0) {
      Fail({call_->name, 0}, "exits while its warp waits for it at %s",
           ToString(warp.pending[i].site).text);
    }
  }
  if (at_barrier_ > 0) {
    Fail({call_->name, 0}, "exits while others wait for it at the barrier %s",
         ToString(barrier_site_).text);
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
  if (!barriers.Reached("block", site) && vote == BlockVote::kNone) return 0;
  if (exited_ > 0) Fail(site, "barrier that some threads of the block never reach: they exited");
  if (at_barrier_ == 0) {
    barrier_site_ = site;
    barrier_vote_ = vote;
  } else if (!(barrier_site_ == site) || vote != barrier_vote_) {
    Fail(site, "divergent barrier: others wait at %s", ToString(barrier_site_).text);
  }
  current().vote = predicate != 0;
  if (++at_barrier_ < thread_count_) {
    Wait(ThreadState::kAtBlockBarrier, site);
    return current().vote;
  }
  at_barrier_ = 0;
  Shadow::Get().BlockBarrier();
  int count = 0;
  for (int i = 0; i < thread_count_; ++i) count += threads_[i].vote;
  int result = count;
  if (vote == BlockVote::kOr) result = count > 0;
  if (vote == BlockVote::kAnd) result = count == thread_count_;
  for (int i = 0; i < thread_count_; ++i) {
    threads_[i].vote = result;
    threads_[i].state = ThreadState::kReady;
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
  if ((mask & bit) == 0) Fail(site, "the lane is not in the mask that it passes");
  if ((mask & ~warp.alive) != 0) Fail(site, "the mask names a lane that has exited");
  for (int i = 0; i < warp.pending_count; ++i) {
    PendingOp& pending = warp.pending[i];
    if (pending.op != op || pending.mask != mask) continue;
    if (op != WarpOp::kSync && !(pending.site == site)) {
      Fail(site, "divergent warp: others of the mask are at %s", ToString(pending.site).text);
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
  if (op == WarpOp::kSync && !barriers.Reached("warp", site)) return 0;
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

MmaFault Machine::CurrentMmaFault() const {
  if (mma_fault == MmaFault::kNone) return mma_fault;
  const bool here = std::strstr(call_->name, mma_fault_kernel.c_str()) != nullptr;
  return here ? mma_fault : MmaFault::kNone;
}

void Machine::Complete(Warp& warp, PendingOp& op) {
  const int base = current_ / kLanes * kLanes;
  if (op.op == WarpOp::kSync) {
    Shadow::Get().WarpBarrier(op.mask);
  } else {
    const int outside = LaneThatReadsOutside(op);
    if (outside >= 0) {
      Fail(op.site, "lane %d reads from a lane that the mask does not name", outside);
    }
    uint64_t results[kLanes];
    Evaluate(op, schedule.split_mma_sums, CurrentMmaFault(), results);
    for (unsigned left = op.mask; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      threads_[base + lane].result = results[lane];
    }
  }
  for (unsigned left = op.mask; left != 0; left &= left - 1) {
    threads_[base + std::countr_zero(left)].state = ThreadState::kReady;
  }
  warp.ready |= op.mask;
  ready_warps_ |= 1u << current_ / kLanes;
  PendingOp& last = warp.pending[--warp.pending_count];
  if (&last != &op) op = last;
}

int SyncBlock(BlockVote vote, int predicate, Site site) {
  return Machine::Get().SyncBlock(vote, predicate, site);
}

uint64_t WarpCollective(WarpOp op, unsigned mask, uint64_t value, int argument, int width,
                        Site site) {
  return Machine::Get().SyncWarp(op, mask, value, argument, width, site);
}

}  // namespace tokend::simt
