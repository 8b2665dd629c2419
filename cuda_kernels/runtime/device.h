#ifndef TOKEND_CUDA_KERNELS_RUNTIME_DEVICE_H_
#define TOKEND_CUDA_KERNELS_RUNTIME_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tokend::cuda {

struct DeviceInfo {
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  int major = 0;     // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int64_t shared_bytes_per_multiprocessor = 0;
  int64_t shared_bytes_per_block = 0;  // at most, for a kernel that asks
  int64_t l2_bytes = 0;
  bool integrated = false;  // its memory is the host's
  int64_t memory_bytes = 0;
  // A kernel may start before the one before it has ended (see
  // device/dependent_launch.cuh): the loaded code was compiled for 9.0 or later.
  bool dependent_launch = false;

  // "cuda:0 (NVIDIA H200, 9.0, 132 multiprocessors)". Here, for the daemon, which has
  // this header alone.
  std::string ToString() const {
    return absl::StrCat("cuda:", ordinal, " (", name, ", ", major, ".", minor, ", ",
                        multiprocessors, " multiprocessors)");
  }
};

// Makes the device the calling thread's and loads this library's code for it. One
// line that says what is wrong and what helps:
// FAILED_PRECONDITION: no driver, or an older one than this build needs; a part that
//   it has no code for.
// NOT_FOUND: no device, or not that many.
// UNAVAILABLE: there, but not now (taken by another process, not yet up): later it
//   may work.
absl::StatusOr<DeviceInfo> OpenDevice(int ordinal);

// On another thread than OpenDevice's.
absl::Status UseDevice(int ordinal);

// Whose kernels go first where several streams have some ready. kNormal is what every
// program has that says nothing, and the lowest that there is.
enum class StreamPriority { kNormal, kHigh };

struct DeviceMemory {
  int64_t free_bytes = 0;  // integrated: what the host can give, page cache included
  int64_t total_bytes = 0;
};
// Of the calling thread's device.
absl::StatusOr<DeviceMemory> ReadDeviceMemory(const DeviceInfo& device);

// RESOURCE_EXHAUSTED, in numbers, if `bytes` for `what` are not free.
absl::Status CheckMemory(const DeviceInfo& device, int64_t bytes, absl::string_view what);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_RUNTIME_DEVICE_H_
