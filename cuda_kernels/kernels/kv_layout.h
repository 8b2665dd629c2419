#ifndef TOKEND_CUDA_KERNELS_KERNELS_KV_LAYOUT_H_
#define TOKEND_CUDA_KERNELS_KERNELS_KV_LAYOUT_H_

#include <cstdint>

namespace tokend::cuda {

// How a page of one layer lies in the arena; page i starts at i * page_bytes().
//
//   keys    [kv_head][page_tokens][head_dim], rotated at their own positions
//   values  [kv_head][head_dim][page_tokens], so that what a tensor core sums over
//           lies side by side (ldmatrix.trans has no 8-bit form below sm_100)
//
// of f16, or of int8 codes and behind them
//
//   key scales, value scales    [kv_head][page_tokens] f16 each
//
// value = scale * code, |code| <= 127. Every part starts at a multiple of 16 bytes.
struct KvLayout {
  bool int8 = false;     // else f16
  int page_tokens = 16;  // 16 or 32
  int kv_heads = 0;
  int head_dim = 0;  // a multiple of 16

  // page_tokens as a power of two.
  constexpr int page_shift() const { return page_tokens == 32 ? 5 : 4; }
  constexpr int element_bytes() const { return int8 ? 1 : 2; }
  // Bytes of one KV head's keys, or of its values.
  constexpr int head_bytes() const { return head_dim * page_tokens * element_bytes(); }
  constexpr int64_t key_offset(int kv_head) const { return int64_t{kv_head} * head_bytes(); }
  constexpr int64_t value_offset(int kv_head) const {
    return int64_t{kv_heads + kv_head} * head_bytes();
  }
  // int8 only.
  constexpr int64_t key_scale_offset(int kv_head) const {
    return int64_t{2} * kv_heads * head_bytes() + int64_t{kv_head} * page_tokens * 2;
  }
  constexpr int64_t value_scale_offset(int kv_head) const {
    return key_scale_offset(kv_heads + kv_head);
  }
  constexpr int64_t page_bytes() const {
    return int64_t{2} * kv_heads * (head_bytes() + (int8 ? page_tokens * 2 : 0));
  }
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_KV_LAYOUT_H_
