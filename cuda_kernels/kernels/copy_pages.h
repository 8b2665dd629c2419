#ifndef TOKEND_CUDA_KERNELS_KERNELS_COPY_PAGES_H_
#define TOKEND_CUDA_KERNELS_KERNELS_COPY_PAGES_H_

#include <driver_types.h>

#include <cstdint>

#include "absl/status/status.h"

namespace tokend::cuda {

// Pages to copy whole, `to` from `from`; no page is in both lists.
struct CopyPagesParams {
  unsigned char* arena = nullptr;  // [pages, page_bytes], 16-byte aligned
  int64_t page_bytes = 0;          // a multiple of 16
  const int32_t* from = nullptr;   // [count], on the device
  const int32_t* to = nullptr;     // [count], on the device
  int count = 0;
};

absl::Status CopyPages(const CopyPagesParams& params, cudaStream_t stream);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_COPY_PAGES_H_
