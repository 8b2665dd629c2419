#ifndef TOKEND_CUDA_KERNELS_RUNTIME_STEP_TIMER_H_
#define TOKEND_CUDA_KERNELS_RUNTIME_STEP_TIMER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_kernels/runtime/stream.h"

namespace tokend::cuda {

struct PartTime {
  const char* name = nullptr;  // a literal
  int64_t count = 0;
  double seconds = 0;  // of all of them
};

// Times the parts of a stream's work by an event behind each, in a graph or outside.
// The events keep kernels from overlapping: the parts take longer than without it.
class StepTimer {
 public:
  // Forgets what it saw, and counts from here on.
  absl::Status Start(const Stream& stream);
  // What was started since the last mark is a part of this name, a literal.
  absl::Status Mark(const char* name, const Stream& stream);

  // By name, in the order of their first marks. The stream's work since Start has
  // ended; of a graph, the last replay counts.
  absl::StatusOr<std::vector<PartTime>> Read() const;

 private:
  absl::Status Record(size_t index, const Stream& stream);

  std::vector<Event> events_;  // [marks + 1], more where there were more
  std::vector<const char*> names_;
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_RUNTIME_STEP_TIMER_H_
