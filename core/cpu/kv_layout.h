#ifndef TOKEND_CORE_CPU_KV_LAYOUT_H_
#define TOKEND_CORE_CPU_KV_LAYOUT_H_

#include <cstdint>

#include "core/base/dtype.h"

namespace tokend::cpu {

// How a page lies in memory. Keys and values have arenas of their own; page i of
// each starts at i * half_page_bytes().
//
//   keys    [kv_head][head_dim][page_tokens]: a vector of one dimension of
//           consecutive positions, so that a score is a sum down the dimensions
//   values  [kv_head][page_tokens][head_dim]
//
// of f32, f16 or int8 codes. int8 has, behind all codes of the half page, f16
// scales [kv_head][page_tokens]: value = scale * code, |code| <= 127.
struct KvLayout {
  base::KvDtype dtype = base::KvDtype::kF16;
  int page_tokens = 16;
  int kv_heads = 0;
  int head_dim = 0;

  int element_bytes() const {
    return dtype == base::KvDtype::kF32 ? 4 : dtype == base::KvDtype::kF16 ? 2 : 1;
  }
  bool scaled() const { return dtype == base::KvDtype::kInt8; }
  // Bytes of one KV head's codes in a half page.
  int64_t head_bytes() const { return int64_t{head_dim} * page_tokens * element_bytes(); }
  // Offset of a head's scales in a half page; int8 only.
  int64_t scale_offset(int kv_head) const {
    return kv_heads * head_bytes() + int64_t{kv_head} * page_tokens * 2;
  }
  int64_t half_page_bytes() const {
    return kv_heads * (head_bytes() + (scaled() ? int64_t{page_tokens} * 2 : 0));
  }
  int64_t page_bytes() const { return 2 * half_page_bytes(); }
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_KV_LAYOUT_H_
