#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda_kernels/kernels/attention.h"
#include "cuda_kernels/kernels/attention_dispatch.h"

namespace tokend::cuda {

absl::Status CheckAttentionShape(const KvLayout& kv, int heads) {
  constexpr int kHeadDims[] = {16, 32, 64, 80, 96, 128, 256};
  constexpr int kMaxGroup = 16;
  bool known = false;
  for (const int head_dim : kHeadDims) known = known || head_dim == kv.head_dim;
  if (!known) {
    return absl::InvalidArgumentError(absl::StrCat("cuda: head size ", kv.head_dim,
                                                   " is not one of 16, 32, 64, 80, 96, 128, 256"));
  }
  if (kv.kv_heads < 1 || heads % kv.kv_heads != 0 || heads / kv.kv_heads > kMaxGroup) {
    return absl::InvalidArgumentError(absl::StrCat("cuda: ", heads, " query heads for ",
                                                   kv.kv_heads, " KV heads; at most ", kMaxGroup,
                                                   " may share one"));
  }
  if (kv.page_tokens != 16 && kv.page_tokens != 32) {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda: pages of ", kv.page_tokens, " tokens, not 16 or 32"));
  }
  return absl::OkStatus();
}

int64_t AttentionWorkspaceBytes(const KvLayout& kv, int heads, int items) {
  return int64_t{items} * kv.kv_heads * AttentionSlotBytes(kv, heads);
}

}  // namespace tokend::cuda
