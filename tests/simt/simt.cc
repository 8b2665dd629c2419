// What kernels call: simt.h for the running thread of the running block.
#include "tests/simt/simt.h"

#include <utility>

#include "tests/simt/machine.h"

namespace tokend::simt {

void* SharedMemoryAt(size_t byte_offset, size_t bytes, Site site) {
  return Machine::Get().SharedAt(byte_offset, bytes, site);
}

void CopyAsync16(void* shared, const void* global, bool valid, Site site) {
  Machine::Get().CopyAsync(shared, global, valid, site);
}

void CommitCopies() { ++Machine::Get().current().copy_groups; }

void WaitForCopies(int pending, Site site) { Machine::Get().WaitForCopies(pending, site); }

void WaitForPreviousKernel() { Machine::Get().current().waited_for_previous_kernel = true; }

unsigned ActiveMask() { return Machine::Get().alive_lanes(); }

void Trap(Site site) { Machine::Get().Fail(site, "__trap()"); }

void ThreadFence() { Shadow::Get().Fence(); }

#ifdef TOKEND_SIMT_SHADOW
void AtomicAccess(const volatile void* address, size_t bytes) {
  Shadow::Get().OnAccess(Access::kAtomic, const_cast<const void*>(address), bytes,
                         __builtin_return_address(0));
}
#else
void AtomicAccess(const volatile void*, size_t) {}
#endif

void SetMmaFault(MmaFault fault, const std::string& kernel) {
  Machine::Get().mma_fault = fault;
  Machine::Get().mma_fault_kernel = kernel;
}

void SetSchedule(const Schedule& schedule) { Machine::Get().schedule = schedule; }
const Schedule& CurrentSchedule() { return Machine::Get().schedule; }

std::vector<std::string> TakeFindings() { return std::exchange(Machine::Get().findings, {}); }

void DropBarriers(const std::vector<std::string>& sites) { Machine::Get().barriers.Drop(sites); }

}  // namespace tokend::simt
