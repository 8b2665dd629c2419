// Says what the first CUDA device is, in one line; exit code 77 where there is none that
// can be used, and why.
#include <cstdio>

#include "core/base/status_macros.h"
#include "cuda_kernels/runtime/device.h"

namespace {

absl::StatusOr<std::string> Describe() {
  TOKEND_ASSIGN_OR_RETURN(const tokend::cuda::DeviceInfo device, tokend::cuda::OpenDevice(0));
  TOKEND_ASSIGN_OR_RETURN(const auto memory, tokend::cuda::ReadDeviceMemory(device));
  return absl::StrCat(device.ToString(), ", ", memory.free_bytes >> 20, " of ",
                      memory.total_bytes >> 20, " MiB free");
}

}  // namespace

int main() {
  const auto line = Describe();
  if (line.ok()) {
    std::puts(line->c_str());
    return 0;
  }
  std::puts(std::string(line.status().message()).c_str());
  return 77;
}
