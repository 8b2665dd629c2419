#ifndef TOKEND_CORE_CPU_HUGE_PAGES_H_
#define TOKEND_CORE_CPU_HUGE_PAGES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace tokend::cpu {

// Zeroed anonymous memory, aligned to 2 MiB and advised to be backed by huge
// pages; where the system has none it is plain memory. Owns its mapping.
// Movable. Reading and writing it is the caller's to order.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  // RESOURCE_EXHAUSTED if the system has no room.
  static absl::StatusOr<HugeBuffer> Allocate(int64_t bytes);
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  ~HugeBuffer();

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

  // How much of it huge pages back at this moment, read from /proc/self/smaps;
  // 0 where that cannot be read.
  int64_t HugePageBytes() const;

 private:
  void* mapping_ = nullptr;  // what munmap gets
  int64_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// Memory for all weights of a model, planned first and then taken in pieces.
// Not thread-safe.
class WeightArena {
 public:
  static constexpr int64_t kAlignment = 64;

  // RESOURCE_EXHAUSTED if the system has no room.
  static absl::StatusOr<WeightArena> Create(int64_t bytes);

  // What one Take of `bytes` uses up.
  static int64_t Rounded(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // 64-byte aligned, zeroed. The sum of Rounded() of all takes may not exceed
  // the arena's size.
  std::byte* Take(int64_t bytes);

  int64_t size() const { return buffer_.size(); }
  int64_t used() const { return used_; }
  int64_t HugePageBytes() const { return buffer_.HugePageBytes(); }

 private:
  HugeBuffer buffer_;
  int64_t used_ = 0;
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_HUGE_PAGES_H_
