#include "tests/simt/block_memory.h"

#include <cstdint>
#include <cstring>

#include "tests/simt/machine.h"
#include "tests/simt/sanitizer.h"

namespace tokend::simt {

BlockMemory::BlockMemory()
    : storage_(new unsigned char[kAlign + kMaxSharedBytes + kGuardBytes]), data_(storage_.get()) {
  data_ += (kAlign - reinterpret_cast<uintptr_t>(data_) % kAlign) % kAlign;
}

void BlockMemory::BeginBlock(size_t bytes) {
  bytes_ = bytes;
  ASAN_UNPOISON_MEMORY_REGION(data_, bytes + kGuardBytes);
  std::memset(data_, kPoison, bytes + kGuardBytes);
  ASAN_POISON_MEMORY_REGION(data_ + bytes, kMaxSharedBytes + kGuardBytes - bytes);
}

size_t BlockMemory::StrayWrite() const {
  ASAN_UNPOISON_MEMORY_REGION(data_ + bytes_, kGuardBytes);
  for (size_t i = bytes_; i < bytes_ + kGuardBytes; ++i) {
    if (data_[i] != kPoison) return i;
  }
  return 0;
}

bool BlockMemory::Contains(const void* address, size_t bytes) const {
  const auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(data_);
  return offset < bytes_ && bytes <= bytes_ - offset;
}

void* Machine::SharedAt(size_t byte_offset, size_t bytes, Site site) {
  if (byte_offset > shared_.bytes() || bytes > shared_.bytes() - byte_offset) {
    Fail(site, "shared memory [%zu, +%zu) is beyond the launch's %zu bytes", byte_offset, bytes,
         shared_.bytes());
  }
  if (byte_offset % 16 != 0) Fail(site, "shared memory offset is no multiple of 16");
  Shadow::Get().SharedRegion(byte_offset, bytes);
  return shared_.data() + byte_offset;
}

void Machine::CopyAsync(void* shared, const void* global, bool valid, Site site) {
  if (!shared_.Contains(shared, 16)) Fail(site, "copies to what is not the block's shared memory");
  if (reinterpret_cast<uintptr_t>(shared) % 16 != 0 ||
      (valid && reinterpret_cast<uintptr_t>(global) % 16 != 0)) {
    Fail(site, "an address of a 16-byte copy is no multiple of 16");
  }
  Shadow::Get().CopyIssued(shared, valid ? global : nullptr, site);
  const PendingCopy copy = {shared, global, valid, current().copy_groups};
  current().copies.push_back(copy);
  if (schedule.late_copies) {
    std::memset(shared, kPoison, 16);
  } else {
    Land(copy);
  }
}

void Machine::Land(const PendingCopy& copy) {
  if (copy.valid) {
    std::memcpy(copy.to, copy.from, 16);
  } else {
    std::memset(copy.to, 0, 16);
  }
}

// All but those of the newest `pending` closed groups, and those of the open one.
void Machine::WaitForCopies(int pending, Site site) {
  if (!barriers.Reached("copies", site)) return;
  Thread& thread = current();
  size_t landed = 0;
  for (; landed < thread.copies.size(); ++landed) {
    const PendingCopy& copy = thread.copies[landed];
    if (copy.group >= thread.copy_groups - pending) break;
    if (schedule.late_copies) Land(copy);
    Shadow::Get().CopyLanded(copy.to);
  }
  thread.copies.erase(thread.copies.begin(),
                      thread.copies.begin() + static_cast<std::ptrdiff_t>(landed));
}

}  // namespace tokend::simt
