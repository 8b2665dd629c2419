#ifndef TOKEND_CUDA_KERNELS_RUNTIME_BUFFER_H_
#define TOKEND_CUDA_KERNELS_RUNTIME_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tokend::cuda {

struct FreeDeviceMemory {
  void operator()(void* data) const;
};
struct FreePinnedMemory {
  void operator()(void* data) const;
};

// Memory that goes with its owner. Moved from or of no bytes: data() is nullptr.
template <typename Free>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::move(other.data_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    data_ = std::move(other.data_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  // RESOURCE_EXHAUSTED, in numbers, if `what` does not fit. Not zeroed.
  static absl::StatusOr<Buffer> Allocate(int64_t bytes, absl::string_view what);

  int64_t bytes() const { return bytes_; }
  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  // From `byte_offset` on, which suits T.
  template <typename T>
  T* as(int64_t byte_offset = 0) const {
    return reinterpret_cast<T*>(data() + byte_offset);
  }

 private:
  std::unique_ptr<void, Free> data_;
  int64_t bytes_ = 0;
};

// Of the calling thread's device; aligned to 256 bytes. Freeing waits for the device.
using DeviceBuffer = Buffer<FreeDeviceMemory>;
// Of the host, for copies that run while the host goes on.
using PinnedBuffer = Buffer<FreePinnedMemory>;

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_RUNTIME_BUFFER_H_
