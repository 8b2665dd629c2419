#ifndef TOKEND_CORE_ENGINE_RATE_WINDOW_H_
#define TOKEND_CORE_ENGINE_RATE_WINDOW_H_

#include <array>
#include <cstdint>

#include "absl/time/time.h"
#include "core/base/mutex.h"

namespace tokend::engine {

// Tokens a second over the last ten whole seconds and the one that runs.
// Thread-safe.
class RateWindow {
 public:
  struct Rates {
    double prefill = 0;
    double decode = 0;
  };

  void Add(int prefill_tokens, int decode_tokens, absl::Duration now) {
    base::MutexLock lock(&mu_);
    Slot& slot = slots_[Second(now) % kSlots];
    if (slot.second != Second(now)) slot = {Second(now), 0, 0};
    slot.prefill += prefill_tokens;
    slot.decode += decode_tokens;
  }

  Rates Get(absl::Duration now) {
    base::MutexLock lock(&mu_);
    Rates rates;
    for (const Slot& slot : slots_) {
      const int64_t age = Second(now) - slot.second;
      if (age < 0 || age >= kSlots) continue;
      rates.prefill += static_cast<double>(slot.prefill);
      rates.decode += static_cast<double>(slot.decode);
    }
    const double span = kSlots - 1 + absl::ToDoubleSeconds(now) - static_cast<double>(Second(now));
    rates.prefill /= span;
    rates.decode /= span;
    return rates;
  }

 private:
  static constexpr int64_t kSlots = 11;
  struct Slot {
    int64_t second = -kSlots;
    int64_t prefill = 0;
    int64_t decode = 0;
  };
  static int64_t Second(absl::Duration now) { return absl::ToInt64Seconds(now); }

  base::Mutex mu_;
  std::array<Slot, kSlots> slots_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_RATE_WINDOW_H_
