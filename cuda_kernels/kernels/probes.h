// What a device can do at best, for benchmarks to be judged by.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_PROBES_H_
#define TOKEND_CUDA_KERNELS_KERNELS_PROBES_H_

#include <driver_types.h>

#include <cstdint>

#include "absl/status/status.h"

namespace tokend::cuda {

struct ReadProbeParams {
  const unsigned char* data = nullptr;  // on the device, 16-byte aligned
  int64_t bytes = 0;                    // a multiple of 16
  unsigned* sink = nullptr;             // written where the data's parity says so: hardly ever
};

// Reads all of `data` once.
absl::Status ReadProbe(const ReadProbeParams& params, int multiprocessors, cudaStream_t stream);

struct BoundaryProbeParams {
  int dependent = 0;
};

// A kernel of one block a multiprocessor that does nothing; `dependent`: it may start
// before the one before it has ended, and waits for it.
absl::Status BoundaryProbe(bool dependent, int multiprocessors, cudaStream_t stream);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_PROBES_H_
