#ifndef TOKEND_CORE_CPU_KV_ARENA_H_
#define TOKEND_CORE_CPU_KV_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/page_id.h"
#include "core/cpu/huge_pages.h"
#include "core/cpu/kv_layout.h"
#include "core/ops/step.h"

namespace tokend::cpu {

// The memory of all KV pages. Who owns a page, and what it holds, is the
// caller's to know. Not thread-safe.
class KvArena {
 public:
  KvArena() = default;
  // RESOURCE_EXHAUSTED if the system has no room.
  static absl::StatusOr<KvArena> Create(const KvLayout& layout, int64_t pages);

  const KvLayout& layout() const { return layout_; }
  int64_t pages() const { return pages_; }
  std::byte* keys() const { return keys_.data(); }
  std::byte* values() const { return values_.data(); }

  // Copies the first copy.rows positions of a page, for all heads.
  void CopyRows(const ops::PageCopy& copy);

 private:
  KvLayout layout_;
  int64_t pages_ = 0;
  HugeBuffer keys_;    // [pages][half_page_bytes]
  HugeBuffer values_;  // [pages][half_page_bytes]
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_KV_ARENA_H_
