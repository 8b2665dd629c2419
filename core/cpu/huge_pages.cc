#include "core/cpu/huge_pages.h"

#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace tokend::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

absl::StatusOr<HugeBuffer> HugeBuffer::Allocate(int64_t bytes) {
  TOKEND_CHECK(bytes >= 0);
  HugeBuffer buffer;
  if (bytes == 0) return buffer;
  // A small buffer gains nothing from a huge page and would waste most of it.
  const bool huge = bytes >= kHugePage;
  const int64_t mapping_bytes = huge ? (bytes + 2 * kHugePage - 1) / kHugePage * kHugePage : bytes;
  void* mapping = mmap(nullptr, static_cast<size_t>(mapping_bytes), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  }
  buffer.mapping_ = mapping;
  buffer.mapping_bytes_ = mapping_bytes;
  uintptr_t start = reinterpret_cast<uintptr_t>(mapping);
  if (huge) {
    madvise(mapping, static_cast<size_t>(mapping_bytes), MADV_HUGEPAGE);  // may fail without harm
    start = (start + kHugePage - 1) / kHugePage * kHugePage;
  }
  buffer.data_ = reinterpret_cast<std::byte*>(start);
  buffer.size_ = bytes;
  return buffer;
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept { *this = std::move(other); }

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HugeBuffer::~HugeBuffer() {
  if (mapping_ != nullptr) munmap(mapping_, static_cast<size_t>(mapping_bytes_));
}

int64_t HugeBuffer::HugePageBytes() const {
  std::unique_ptr<FILE, int (*)(FILE*)> smaps(std::fopen("/proc/self/smaps", "re"), std::fclose);
  if (smaps == nullptr || data_ == nullptr) return 0;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data_);
  const uintptr_t end = begin + static_cast<uintptr_t>(size_);
  // The system may have merged the mapping with a neighbour or split it: a region
  // counts for at most the bytes that it shares with this buffer.
  int64_t total = 0;
  int64_t shared = 0;
  char line[512];
  while (std::fgets(line, sizeof(line), smaps.get()) != nullptr) {
    uintptr_t from = 0;
    uintptr_t to = 0;
    int64_t kib = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
      const uintptr_t low = from > begin ? from : begin;
      const uintptr_t high = to < end ? to : end;
      shared = high > low ? static_cast<int64_t>(high - low) : 0;
    } else if (std::sscanf(line, "AnonHugePages: %" SCNd64 " kB", &kib) == 1) {
      const int64_t bytes = kib * 1024;
      total += bytes < shared ? bytes : shared;
    }
  }
  return total;
}

absl::StatusOr<WeightArena> WeightArena::Create(int64_t bytes) {
  absl::StatusOr<HugeBuffer> buffer = HugeBuffer::Allocate(bytes);
  if (!buffer.ok()) return buffer.status();
  WeightArena arena;
  arena.buffer_ = *std::move(buffer);
  return arena;
}

std::byte* WeightArena::Take(int64_t bytes) {
  TOKEND_CHECK(bytes >= 0 && Rounded(bytes) <= size() - used_);
  std::byte* piece = buffer_.data() + used_;
  used_ += Rounded(bytes);
  return piece;
}

}  // namespace tokend::cpu
