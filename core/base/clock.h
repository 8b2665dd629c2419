#ifndef TOKEND_CORE_BASE_CLOCK_H_
#define TOKEND_CORE_BASE_CLOCK_H_

#include "absl/time/time.h"
#include "core/base/mutex.h"

namespace tokend::base {

// Time as the product sees it. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Wall time: for timestamps that a client sees.
  virtual absl::Time Now() = 0;
  // Time since some fixed start, never set back: for deadlines and durations.
  virtual absl::Duration Monotonic() = 0;
};

// The machine's clock. Not owned by the caller; lives as long as the process.
Clock* RealClock();

// Moves only when told to.
class ManualClock : public Clock {
 public:
  explicit ManualClock(absl::Time start = absl::UnixEpoch()) : start_(start) {}
  absl::Time Now() override;
  absl::Duration Monotonic() override;
  void Advance(absl::Duration by);

 private:
  const absl::Time start_;
  Mutex mu_;
  absl::Duration elapsed_ ABSL_GUARDED_BY(mu_) = absl::ZeroDuration();
};

}  // namespace tokend::base

#endif  // TOKEND_CORE_BASE_CLOCK_H_
