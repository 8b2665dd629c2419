#ifndef TOKEND_CORE_GGUF_BYTE_READER_H_
#define TOKEND_CORE_GGUF_BYTE_READER_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tokend::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// A cursor over untrusted bytes that cannot leave them.
class ByteReader {
 public:
  explicit ByteReader(absl::Span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  // False, and the cursor stays, if fewer bytes are left.
  template <typename T>
  bool Read(T* value) {
    if (remaining() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return true;
  }

  bool ReadBytes(uint64_t count, absl::string_view* view) {
    if (remaining() < count) return false;
    *view = absl::string_view(reinterpret_cast<const char*>(bytes_.data()) + offset_,
                              static_cast<size_t>(count));
    offset_ += count;
    return true;
  }

  // What was read since `begin`.
  absl::Span<const std::byte> Since(uint64_t begin) const {
    return bytes_.subspan(begin, offset_ - begin);
  }

 private:
  absl::Span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

}  // namespace tokend::gguf

#endif  // TOKEND_CORE_GGUF_BYTE_READER_H_
