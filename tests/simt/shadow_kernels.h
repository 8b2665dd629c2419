// Kernels with one bug each, compiled as those of cuda_kernels/ are for the shadow.
#ifndef TOKEND_TESTS_SIMT_SHADOW_KERNELS_H_
#define TOKEND_TESTS_SIMT_SHADOW_KERNELS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"

namespace tokend::simt {

enum class Bug {
  kNone,
  kMissingBarrier,         // a thread reads what another wrote
  kMissingBarrierOnReuse,  // all read, then one writes again
  kMissingSyncwarp,        // the same between lanes
  kShuffleAsBarrier,       // a shuffle orders nothing
  kPartialSyncwarp,        // the mask leaves the reader out
  kUnwrittenShared,        // as a half
  kUnwrittenVector,        // as a uint4 of which 8 bytes were written
  kOutsideSharedArray,     // in a gap that no array has
  kOutsideAllocation,      // one float behind device memory
  kCopyNotWaited,          // reads what a copy still writes
  kCopyNotPublished,       // waits, but the reader is another thread and no barrier follows
  kCopyOverRead,           // copies over what others still read
  kGlobalRace,             // two threads of a block
  kBlocksConflict,         // two blocks write one value
  kNoFence,                // the last block adds up what others wrote without a fence
  kNoBarrierBeforeAtomic,  // one thread's atomic stands for what all have written
  kReadBeforeWait,         // of a dependent launch
  kCopyBeforeWait,         // of what the kernel before wrote
};

struct BuggyParams {
  Bug bug = Bug::kNone;
  const float* input = nullptr;  // [64], 16-byte aligned
  float* data = nullptr;         // likewise, written
  unsigned* counter = nullptr;   // 0
};

// Two blocks of 64 threads, except for what needs one.
absl::Status RunBuggy(const BuggyParams& params, cudaStream_t stream);
// Writes data, then reads it in a dependent launch.
absl::Status RunDependent(const BuggyParams& params, cudaStream_t stream);

}  // namespace tokend::simt

#endif  // TOKEND_TESTS_SIMT_SHADOW_KERNELS_H_
