#ifndef TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_DISPATCH_H_
#define TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_DISPATCH_H_

#include "absl/status/status.h"
#include "cuda_kernels/kernels/attention.h"

namespace tokend::cuda {

// Bytes that a decode block leaves for one item and KV head (see attention_decode.cu).
constexpr int64_t AttentionSlotBytes(const KvLayout& kv, int heads) {
  const int64_t group = heads / kv.kv_heads;
  const int64_t words = group * (kv.head_dim + 2) + 1;
  return (words + 3) / 4 * 16;
}

// What a kernel gets.
struct AttentionLaunch {
  AttentionParams params;
  int stages = 2;  // tiles of keys and values that fit the block's ring
};

// Taken by the system from each block's share of a multiprocessor.
inline constexpr int kReservedSharedBytes = 1024;

template <int kHeadDim, typename Launcher>
absl::Status DispatchDtype(const AttentionParams& params, const Launcher& launcher) {
  return params.kv.int8 ? launcher.template Run<kHeadDim, true>()
                        : launcher.template Run<kHeadDim, false>();
}

// launcher.Run<head size, int8>().
template <typename Launcher>
absl::Status DispatchAttention(const AttentionParams& params, const Launcher& launcher) {
  switch (params.kv.head_dim) {
    case 16:
      return DispatchDtype<16>(params, launcher);
    case 32:
      return DispatchDtype<32>(params, launcher);
    case 64:
      return DispatchDtype<64>(params, launcher);
    case 80:
      return DispatchDtype<80>(params, launcher);
    case 96:
      return DispatchDtype<96>(params, launcher);
    case 128:
      return DispatchDtype<128>(params, launcher);
    case 256:
      return DispatchDtype<256>(params, launcher);
    default:
      return CheckAttentionShape(params.kv, params.heads);
  }
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_DISPATCH_H_
