#include "tests/simt/shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/base/check.h"
#include "tests/simt/machine.h"
#include "tests/simt/source_line.h"

namespace tokend::simt {
namespace {

constexpr size_t kArenaBytes = size_t{5} << 28;
constexpr size_t kAlign = 256;
constexpr size_t kGapBytes = 256;  // between allocations: an access there is outside

// Who touched a byte, and when.
struct Stamp {
  uint32_t block = 0;     // serial number of the block since the start; 0: nobody
  uint16_t barriers = 0;  // of the block before the access
  uint16_t clock = 0;     // of the thread's lane
  uint16_t thread = 0;
  bool atomic = false;
  bool in_flight = false;  // an asynchronous copy that has not landed

  bool operator==(const Stamp&) const = default;
};

struct Cell {
  Stamp write;
  Stamp first_read;  // the first reader since the block's last barrier
  Stamp last_read;   // the last one that is another
};

void* Reserve(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TOKEND_CHECK(memory != MAP_FAILED);
  return memory;
}

// How much of a block's writes another one sees: those before the block's barrier number
// `barriers`, and those that the thread which handed them on has seen of its warp.
struct Seen {
  bool any = false;
  uint16_t barriers = 0;
  uint16_t warp = 0;
  uint16_t clocks[kLanes] = {};

  void Join(const Seen& other) {
    if (other.any && (!any || other.barriers >= barriers)) *this = other;
  }
};

// What an atomic operation on one address hands on, by block: what was written before a
// fence and the operation, its next caller sees.
struct Handover {
  std::vector<Seen> blocks;
};

}  // namespace

struct Shadow::State {
  void CheckBytes(Access access, const unsigned char* address, size_t bytes, Cell* cells,
                  bool shared, const void* pc);
  bool Ordered(const Stamp& before) const;
  Stamp Now() const;
  void Synchronise(const void* address);
  [[noreturn]] void Fail(const void* pc, const char* what, const Stamp& other);
  bool InAllocation(const unsigned char* address, size_t bytes) const;

  unsigned char* arena = nullptr;
  Cell* arena_cells = nullptr;
  std::vector<Cell> shared_cells = std::vector<Cell>(kMaxSharedBytes);
  std::map<uintptr_t, size_t> allocations;
  mutable std::pair<uintptr_t, uintptr_t> newest_hit;  // one of them, its start and end
  std::vector<std::pair<size_t, size_t>> regions;      // of shared memory that the block named

  Site copy_site = {nullptr, 0};  // of the copy that is being issued

  uint32_t next_block = 1;    // serial number
  uint32_t launch_first = 1;  // of the launch's first block to run
  uint32_t waited_until = 0;  // blocks before it ended before the host waited
  unsigned linear_block = 0;
  Stamp block;  // serial and barriers of the running one
  // [lanes of the block, lanes of its warp]: what each has seen of the others
  uint16_t clocks[kMaxThreads][kLanes];
  bool fenced[kMaxThreads];
  std::vector<Seen> seen;                   // by block, what the running one sees
  std::vector<unsigned> linear_by_serial;   // of this launch
  std::map<uintptr_t, Handover> handovers;  // by address, of this launch
};

Shadow::Shadow() : state_(new State) {}

Shadow& Shadow::Get() {
  static Shadow* const shadow = new Shadow;
  return *shadow;
}

void Shadow::BeginLaunch(unsigned blocks) {
  State& state = *state_;
  state.launch_first = state.next_block;
  state.handovers.clear();
  state.seen.assign(blocks, Seen());
  state.linear_by_serial.clear();
}

void Shadow::BeginBlock(unsigned linear_block) {
  State& state = *state_;
  state.block = {};
  state.block.block = state.next_block++;
  TOKEND_CHECK(state.next_block != 0);
  state.linear_block = linear_block;
  state.linear_by_serial.push_back(linear_block);
  std::fill(state.seen.begin(), state.seen.end(), Seen());
  state.regions.clear();
  std::fill_n(&state.clocks[0][0], kMaxThreads * kLanes, uint16_t{0});
  for (int i = 0; i < kMaxThreads; ++i) state.clocks[i][i % kLanes] = 1;
  std::fill_n(state.fenced, kMaxThreads, false);
}

void Shadow::SharedRegion(size_t byte_offset, size_t bytes) {
  const std::pair<size_t, size_t> region(byte_offset, bytes);
  auto& regions = state_->regions;
  if (std::find(regions.begin(), regions.end(), region) == regions.end()) {
    regions.push_back(region);
  }
}

void Shadow::BlockBarrier() { TOKEND_CHECK(++state_->block.barriers != 0); }

// All lanes of the mask see what each of them has done until now.
void Shadow::WarpBarrier(unsigned mask) {
  State& state = *state_;
  const int first = Machine::Get().current_index() / kLanes * kLanes;
  uint16_t joined[kLanes] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    for (int other = 0; other < kLanes; ++other) {
      joined[other] = std::max(joined[other], state.clocks[first + lane][other]);
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    std::copy_n(joined, kLanes, state.clocks[first + lane]);
    TOKEND_CHECK(++state.clocks[first + lane][lane] != 0);
  }
}

Stamp Shadow::State::Now() const {
  Stamp now = block;
  const int thread = Machine::Get().current_index();
  now.thread = static_cast<uint16_t>(thread);
  now.clock = clocks[thread][thread % kLanes];
  return now;
}

// Whether the running thread sees what `before` did.
bool Shadow::State::Ordered(const Stamp& before) const {
  if (before.block < launch_first) return true;
  if (before.block != block.block) {
    const Seen& other = seen[linear_by_serial[before.block - launch_first]];
    return other.any && (before.barriers < other.barriers ||
                         (before.thread / kLanes == other.warp &&
                          other.clocks[before.thread % kLanes] >= before.clock));
  }
  const int thread = Machine::Get().current_index();
  if (before.thread == thread || before.barriers != block.barriers) return true;
  return before.thread / kLanes == thread / kLanes &&
         clocks[thread][before.thread % kLanes] >= before.clock;
}

void Shadow::State::Fail(const void* pc, const char* what, const Stamp& other) {
  Machine& machine = Machine::Get();
  const Site site = copy_site.file != nullptr ? copy_site : SourceLine(pc);
  copy_site = {nullptr, 0};
  if (other.block == 0) machine.Fail(site, "%s", what);
  if (other.block != block.block) {
    machine.Fail(site, "%s of block %u (of the grid, in order)", what,
                 linear_by_serial[other.block - launch_first]);
  }
  machine.Fail(site, "%s of thread %d", what, other.thread);
}

bool Shadow::State::InAllocation(const unsigned char* address, size_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (at >= newest_hit.first && at + bytes <= newest_hit.second) return true;
  auto next = allocations.upper_bound(at);
  if (next == allocations.begin()) return false;
  --next;
  newest_hit = {next->first, next->first + next->second};
  return at + bytes <= newest_hit.second;
}

void Shadow::State::CheckBytes(Access access, const unsigned char* /*address*/, size_t bytes,
                               Cell* cells, bool shared, const void* pc) {
  Stamp now = Now();
  now.atomic = access == Access::kAtomic;
  for (Cell* cell = cells; cell < cells + bytes; ++cell) {
    if (cell->write.in_flight && cell->write.block == block.block) {
      Fail(pc, "accesses what an asynchronous copy may still write,", cell->write);
    }
    if (shared && access != Access::kWrite && cell->write.block != block.block) {
      Fail(pc, "reads shared memory that nobody wrote", {});
    }
    if (shared && cell->write.block != block.block) *cell = {};  // another block's
    const bool both_atomic = now.atomic && cell->write.atomic;
    if (!both_atomic && !Ordered(cell->write)) {
      Fail(pc,
           access == Access::kRead ? "reads what is not ordered after a write"
                                   : "writes what is not ordered after a write",
           cell->write);
    }
    if (access == Access::kRead) {
      const bool stale = cell->first_read.block != block.block ||
                         cell->first_read.barriers != block.barriers ||
                         cell->first_read.thread == now.thread;
      (stale ? cell->first_read : cell->last_read) = now;
      continue;
    }
    for (const Stamp& read : {cell->first_read, cell->last_read}) {
      if (!Ordered(read)) Fail(pc, "writes what is not ordered after a read", read);
    }
    cell->write = now;
  }
}

// A fence, an atomic operation, and another block's atomic operation on the same
// address: that block sees what was written before the fence.
void Shadow::State::Synchronise(const void* address) {
  Handover& handover = handovers[reinterpret_cast<uintptr_t>(address)];
  handover.blocks.resize(seen.size());
  for (size_t i = 0; i < seen.size(); ++i) seen[i].Join(handover.blocks[i]);
  const int thread = Machine::Get().current_index();
  if (!fenced[thread]) return;
  Seen own = {true, block.barriers, static_cast<uint16_t>(thread / kLanes)};
  std::copy_n(clocks[thread], kLanes, own.clocks);
  handover.blocks[linear_block].Join(own);
  for (size_t i = 0; i < seen.size(); ++i) handover.blocks[i].Join(seen[i]);
}

void Shadow::Fence() { state_->fenced[Machine::Get().current_index()] = true; }

void Shadow::OnAccess(Access access, const void* address, size_t bytes, const void* pc) {
  Machine& machine = Machine::Get();
  if (!machine.running()) return;
  State& state = *state_;
  const auto* at = static_cast<const unsigned char*>(address);
  const auto shared_offset = static_cast<size_t>(at - machine.shared().data());
  if (shared_offset < kMaxSharedBytes) {
    const bool named = std::any_of(state.regions.begin(), state.regions.end(),
                                   [&](const std::pair<size_t, size_t>& region) {
                                     return shared_offset >= region.first &&
                                            shared_offset + bytes <= region.first + region.second;
                                   });
    if (!named) state.Fail(pc, "accesses shared memory outside of what it asked for", {});
    state.CheckBytes(access, at, bytes, &state.shared_cells[shared_offset], true, pc);
    return;
  }
  if (state.arena == nullptr || at < state.arena || at >= state.arena + kArenaBytes) return;
  if (!state.InAllocation(at, bytes)) {
    state.Fail(pc, "accesses device memory outside of every allocation", {});
  }
  if (machine.call().dependent && !machine.current().waited_for_previous_kernel) {
    state.Fail(pc, "touches device memory before WaitForPreviousKernel()", {});
  }
  if (access == Access::kAtomic) state.Synchronise(address);
  state.CheckBytes(access, at, bytes, state.arena_cells + (at - state.arena), false, pc);
}

void Shadow::CopyIssued(const void* shared, const void* global, Site site) {
  Machine& machine = Machine::Get();
  State& state = *state_;
  state.copy_site = site;
  const auto* from = static_cast<const unsigned char*>(global);
  if (from != nullptr && state.arena != nullptr && from >= state.arena &&
      from < state.arena + kArenaBytes) {
    if (!state.InAllocation(from, 16)) {
      state.Fail(nullptr, "copies from outside of every allocation of device memory", {});
    }
    Cell* cells = state.arena_cells + (from - state.arena);
    const bool early = machine.call().dependent && !machine.current().waited_for_previous_kernel;
    for (int i = 0; i < 16 && early; ++i) {
      if (cells[i].write.block >= state.waited_until && cells[i].write.block != 0) {
        state.Fail(nullptr, "copies what a kernel wrote before WaitForPreviousKernel()", {});
      }
    }
    state.CheckBytes(Access::kRead, from, 16, cells, false, nullptr);
  }
  OnAccess(Access::kWrite, shared, 16, nullptr);
  state.copy_site = {nullptr, 0};
  const auto offset = static_cast<const unsigned char*>(shared) - machine.shared().data();
  for (int i = 0; i < 16; ++i) state.shared_cells[offset + i].write.in_flight = true;
}

void Shadow::CopyLanded(const void* shared) {
  State& state = *state_;
  const auto offset = static_cast<const unsigned char*>(shared) - Machine::Get().shared().data();
  for (int i = 0; i < 16; ++i) state.shared_cells[offset + i].write = state.Now();
}

void Shadow::HostWaited() { state_->waited_until = state_->next_block; }

void* Shadow::Allocate(size_t bytes) {
  State& state = *state_;
  if (state.arena == nullptr) {
    state.arena = static_cast<unsigned char*>(Reserve(kArenaBytes));
    state.arena_cells = static_cast<Cell*>(Reserve(kArenaBytes * sizeof(Cell)));
  }
  const auto base = reinterpret_cast<uintptr_t>(state.arena);
  uintptr_t at = base + kGapBytes;
  for (const auto& [start, length] : state.allocations) {
    if (start >= at + bytes + kGapBytes) break;
    at = (start + length + kGapBytes + kAlign - 1) / kAlign * kAlign;
  }
  if (at + bytes + kGapBytes > base + kArenaBytes) return nullptr;
  state.allocations[at] = bytes;
  return reinterpret_cast<void*>(at);
}

void Shadow::Free(void* address) {
  state_->allocations.erase(reinterpret_cast<uintptr_t>(address));
  state_->newest_hit = {};
}

}  // namespace tokend::simt
