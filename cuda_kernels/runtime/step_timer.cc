#include "cuda_kernels/runtime/step_timer.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "core/base/status_macros.h"
#include "cuda_kernels/runtime/cuda_status.h"

namespace tokend::cuda {

absl::Status StepTimer::Record(size_t index, const Stream& stream) {
  if (index == events_.size()) {
    TOKEND_ASSIGN_OR_RETURN(events_.emplace_back(), Event::CreateTimed());
  }
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TOKEND_RETURN_IF_ERROR(CudaStatus(cudaStreamIsCapturing(stream.get(), &capture), "time a part"));
  // A plain record would only order what is captured.
  const unsigned flags =
      capture == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
  return CudaStatus(cudaEventRecordWithFlags(events_[index].get(), stream.get(), flags),
                    "time a part");
}

absl::Status StepTimer::Start(const Stream& stream) {
  names_.clear();
  return Record(0, stream);
}

absl::Status StepTimer::Mark(const char* name, const Stream& stream) {
  names_.push_back(name);
  return Record(names_.size(), stream);
}

absl::StatusOr<std::vector<PartTime>> StepTimer::Read() const {
  std::vector<PartTime> parts;
  for (size_t i = 0; i < names_.size(); ++i) {
    TOKEND_ASSIGN_OR_RETURN(const double milliseconds,
                            events_[i + 1].MillisecondsSince(events_[i]));
    auto found = std::find_if(parts.begin(), parts.end(), [&](const PartTime& part) {
      return std::strcmp(part.name, names_[i]) == 0;
    });
    if (found == parts.end()) found = parts.insert(parts.end(), {names_[i], 0, 0});
    ++found->count;
    found->seconds += milliseconds / 1e3;
  }
  return parts;
}

}  // namespace tokend::cuda
