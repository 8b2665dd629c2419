// Which device runs the model.
#ifndef TOKEND_SERVICE_DEVICE_H_
#define TOKEND_SERVICE_DEVICE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cuda_kernels/backend/create.h"
#include "service/settings.h"

namespace tokend::service {

struct Device {
  const cuda::CudaLibrary* cuda_library = nullptr;  // nullptr: the CPU
  cuda::DeviceInfo info;                            // of a CUDA device
  bool may_fall_back = false;                       // to the CPU: nobody asked for this one

  bool is_cuda() const { return cuda_library != nullptr; }
  absl::string_view kind() const { return is_cuda() ? "cuda" : "cpu"; }
};

// What `device` of the settings comes to on this machine, said in one line of the log.
// `paths`: see cuda_library.h. INVALID_ARGUMENT: a setting that the device lacks, or a
// device that was asked for and that no restart brings; else what OpenDevice says.
absl::StatusOr<Device> ChooseDevice(const Settings& settings, absl::Span<const std::string> paths);

// The CPU instead of `from`, whose backend could not be made because of `why`; also said
// in the log. `why` itself where it may not be.
absl::StatusOr<Device> FallBack(const Device& from, const Settings& settings,
                                const absl::Status& why);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_DEVICE_H_
