#ifndef TOKEND_TESTS_SUPPORT_GUARDED_BUFFER_H_
#define TOKEND_TESTS_SUPPORT_GUARDED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "core/base/check.h"
#include "gtest/gtest.h"

namespace tokend::testing {

// An output buffer between guard bytes. Its elements start as bytes of 0xff: as
// a float that is NaN, so that an element that is never written shows.
// `offset` elements push its start off the natural alignment of vectors.
template <typename T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t size, size_t offset = 0)
      : size_(size), bytes_(kAlign + 2 * kGuard + (offset + size) * sizeof(T), kPattern) {
    TOKEND_CHECK(size < (size_t{1} << 40));  // a negative size
    auto at = reinterpret_cast<uintptr_t>(bytes_.data()) + kGuard;
    at = (at + kAlign - 1) / kAlign * kAlign + offset * sizeof(T);
    data_ = reinterpret_cast<T*>(at);
    std::memset(static_cast<void*>(data_), 0xff, size * sizeof(T));
  }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  T* data() { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  absl::Span<T> span() { return absl::MakeSpan(data_, size_); }
  absl::Span<const T> view() const { return absl::MakeConstSpan(data_, size_); }

  // Fails when a byte outside of the buffer has changed.
  ::testing::AssertionResult Intact() const {
    const auto* begin = reinterpret_cast<const uint8_t*>(data_);
    const uint8_t* end = begin + size_ * sizeof(T);
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const uint8_t* at = bytes_.data() + i;
      if (at >= begin && at < end) continue;
      if (*at != kPattern) {
        return ::testing::AssertionFailure()
               << "stray write " << (at < begin ? at - begin : at - end) << " bytes "
               << (at < begin ? "before" : "behind") << " the buffer";
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr size_t kAlign = 64;
  static constexpr size_t kGuard = 256;  // four AVX-512 vectors
  static constexpr uint8_t kPattern = 0xa5;

  size_t size_;
  std::vector<uint8_t> bytes_;
  T* data_;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_GUARDED_BUFFER_H_
