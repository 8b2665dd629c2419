#include "core/cpu/kv_arena.h"

#include <cstring>
#include <utility>

#include "core/base/status_macros.h"

namespace tokend::cpu {

absl::StatusOr<KvArena> KvArena::Create(const KvLayout& layout, int64_t pages) {
  KvArena arena;
  arena.layout_ = layout;
  arena.pages_ = pages;
  const int64_t bytes = pages * layout.half_page_bytes();
  TOKEND_ASSIGN_OR_RETURN(arena.keys_, HugeBuffer::Allocate(bytes));
  TOKEND_ASSIGN_OR_RETURN(arena.values_, HugeBuffer::Allocate(bytes));
  return arena;
}

void KvArena::CopyRows(const ops::PageCopy& copy) {
  const int64_t half = layout_.half_page_bytes();
  const int64_t from = static_cast<int64_t>(copy.from) * half;
  const int64_t to = static_cast<int64_t>(copy.to) * half;
  const auto rows = static_cast<size_t>(copy.rows);
  const auto element = static_cast<size_t>(layout_.element_bytes());
  for (int head = 0; head < layout_.kv_heads; ++head) {
    const int64_t at = head * layout_.head_bytes();
    for (int d = 0; d < layout_.head_dim; ++d) {
      const int64_t column = at + int64_t{d} * layout_.page_tokens * layout_.element_bytes();
      std::memcpy(keys() + to + column, keys() + from + column, rows * element);
    }
    std::memcpy(values() + to + at, values() + from + at,
                rows * static_cast<size_t>(layout_.head_dim) * element);
    if (!layout_.scaled()) continue;
    const int64_t scales = layout_.scale_offset(head);
    std::memcpy(keys() + to + scales, keys() + from + scales, rows * 2);
    std::memcpy(values() + to + scales, values() + from + scales, rows * 2);
  }
}

}  // namespace tokend::cpu
