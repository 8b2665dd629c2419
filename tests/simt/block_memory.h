// The running block's shared memory. Internal.
#ifndef TOKEND_TESTS_SIMT_BLOCK_MEMORY_H_
#define TOKEND_TESTS_SIMT_BLOCK_MEMORY_H_

#include <cstddef>
#include <memory>

namespace tokend::simt {

// Every byte 0xff: a NaN in every float format, -1 in every integer.
inline constexpr unsigned char kPoison = 0xff;
inline constexpr size_t kMaxSharedBytes = 227 * 1024;

class BlockMemory {
 public:
  BlockMemory();

  // `bytes` of poison, with a guard behind them.
  void BeginBlock(size_t bytes);
  // Of a write to the guard, the byte's offset; 0 where there is none.
  size_t StrayWrite() const;

  unsigned char* data() { return data_; }
  size_t bytes() const { return bytes_; }
  bool Contains(const void* address, size_t bytes) const;

 private:
  static constexpr size_t kAlign = 128;
  static constexpr size_t kGuardBytes = 256;

  std::unique_ptr<unsigned char[]> storage_;
  unsigned char* data_;
  size_t bytes_ = 0;
};

}  // namespace tokend::simt

#endif  // TOKEND_TESTS_SIMT_BLOCK_MEMORY_H_
