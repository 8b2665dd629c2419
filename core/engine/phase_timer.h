#ifndef TOKEND_CORE_ENGINE_PHASE_TIMER_H_
#define TOKEND_CORE_ENGINE_PHASE_TIMER_H_

#include <array>
#include <cstddef>
#include <optional>

#include "absl/time/time.h"
#include "core/engine/request.h"

namespace tokend::engine {

// Where a turn's time went. Every moment since admission belongs to one phase,
// so the phases add up to the total. Times are base::Clock::Monotonic().
class PhaseTimer {
 public:
  enum Phase { kQueue, kPrefill, kDecode, kParked };

  explicit PhaseTimer(absl::Duration admitted) : admitted_(admitted), since_(admitted) {}

  Phase phase() const { return phase_; }
  absl::Duration Total(absl::Duration now) const { return now - admitted_; }

  void Enter(Phase phase, absl::Duration now) {
    spent_[phase_] += now - since_;
    phase_ = phase;
    since_ = now;
  }

  // An output token was drawn: the time since admission for the first one, since
  // the one before for others.
  absl::Duration OnToken(absl::Duration now) {
    const absl::Duration since = now - last_token_.value_or(admitted_);
    if (!last_token_.has_value()) first_token_ = since;
    last_token_ = now;
    return since;
  }

  Timings Finish(absl::Duration now) {
    Enter(phase_, now);
    return {spent_[kQueue],  spent_[kPrefill], spent_[kDecode],
            spent_[kParked], first_token_,     Total(now)};
  }

 private:
  const absl::Duration admitted_;
  Phase phase_ = kQueue;
  absl::Duration since_;
  std::array<absl::Duration, 4> spent_;
  absl::Duration first_token_;
  std::optional<absl::Duration> last_token_;
};

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_PHASE_TIMER_H_
