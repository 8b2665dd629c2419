#include "core/base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace tokend::base {
namespace {

class MachineClock : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
  absl::Duration Monotonic() override {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace

Clock* RealClock() {
  static MachineClock clock;
  return &clock;
}

absl::Time ManualClock::Now() {
  MutexLock lock(&mu_);
  return start_ + elapsed_;
}

absl::Duration ManualClock::Monotonic() {
  MutexLock lock(&mu_);
  return elapsed_;
}

void ManualClock::Advance(absl::Duration by) {
  MutexLock lock(&mu_);
  elapsed_ += by;
}

}  // namespace tokend::base
