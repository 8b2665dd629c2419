#ifndef TOKEND_CUDA_KERNELS_RUNTIME_STREAM_H_
#define TOKEND_CUDA_KERNELS_RUNTIME_STREAM_H_

#include <driver_types.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cuda_kernels/runtime/device.h"

namespace tokend::cuda {

struct DestroyEvent {
  void operator()(cudaEvent_t event) const;
};
struct DestroyStream {
  void operator()(cudaStream_t stream) const;
};

// A point in a stream's work.
class Event {
 public:
  Event() = default;
  static absl::StatusOr<Event> Create();
  // For MillisecondsSince; costs a little more.
  static absl::StatusOr<Event> CreateTimed();

  cudaEvent_t get() const { return event_.get(); }
  // The calling thread waits until it is reached; at once if never recorded. Work
  // that failed before it is reported here.
  absl::Status Synchronize(absl::string_view what) const;
  // Both timed, recorded and reached.
  absl::StatusOr<double> MillisecondsSince(const Event& earlier) const;

 private:
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent> event_;
};

// Work of the calling thread's device, in order. `what` names the work in errors.
class Stream {
 public:
  Stream() = default;
  // Where the device knows fewer priorities, the nearest.
  static absl::StatusOr<Stream> Create(StreamPriority priority = StreamPriority::kNormal);

  cudaStream_t get() const { return stream_.get(); }
  // The calling thread waits for all of it; what failed there is reported here.
  absl::Status Synchronize(absl::string_view what) const;
  absl::Status Record(const Event& event) const;
  // Later work starts after `event` of another stream.
  absl::Status WaitFor(const Event& event) const;

  // Runs while the host goes on if the host's side is pinned.
  absl::Status CopyToDevice(void* to, const void* from, int64_t bytes,
                            absl::string_view what) const;
  absl::Status CopyToHost(void* to, const void* from, int64_t bytes, absl::string_view what) const;
  absl::Status CopyOnDevice(void* to, const void* from, int64_t bytes,
                            absl::string_view what) const;
  absl::Status Zero(void* to, int64_t bytes, absl::string_view what) const;

 private:
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream> stream_;
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_RUNTIME_STREAM_H_
