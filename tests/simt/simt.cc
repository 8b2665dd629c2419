// What kernels call: simt.h for the running thread of the running block.
#include "tests/simt/simt.h"

#include "tests/simt/machine.h"

namespace tokend::simt {

int SyncBlock(BlockVote vote, int predicate, Site site) {
  return Machine::Get().SyncBlock(vote, predicate, site);
}

uint64_t WarpCollective(WarpOp op, unsigned mask, uint64_t value, int argument, int width,
                        Site site) {
  return Machine::Get().SyncWarp(op, mask, value, argument, width, site);
}

void* SharedMemoryAt(size_t byte_offset, size_t bytes, Site site) {
  return Machine::Get().SharedAt(byte_offset, bytes, site);
}

void CopyAsync16(void* shared, const void* global, bool valid, Site site) {
  Machine::Get().CopyAsync(shared, global, valid, site);
}

void CommitCopies() { ++Machine::Get().current().copy_groups; }

void WaitForCopies(int pending) { Machine::Get().LandCopies(pending); }

void WaitForPreviousKernel() { Machine::Get().current().waited_for_previous_kernel = true; }

unsigned ActiveMask() { return Machine::Get().alive_lanes(); }

void Trap(Site site) { Machine::Get().Fail("__trap()", site); }

void* AtomicAccess(const volatile void* address, size_t /*bytes*/) {
  return const_cast<void*>(address);
}

void SetSchedule(const Schedule& schedule) { Machine::Get().schedule = schedule; }
const Schedule& CurrentSchedule() { return Machine::Get().schedule; }

std::vector<std::string> TakeFindings() { return std::move(Machine::Get().findings); }

}  // namespace tokend::simt
