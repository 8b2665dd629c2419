#include "service/notify.h"

#include <systemd/sd-daemon.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace tokend::service {
namespace {

void Send(const std::string& state) {
  // Fails where nobody listens, which is no concern of ours.
  (void)sd_notify(/*unset_environment=*/0, state.c_str());
}

}  // namespace

void NotifyLoading(absl::string_view status) {
  Send(absl::StrCat("STATUS=", status, "\nEXTEND_TIMEOUT_USEC=60000000"));
}

void NotifyReady() { Send("READY=1\nSTATUS=serving"); }

void NotifyStopping(absl::Duration drain_timeout) {
  const absl::Duration extend = drain_timeout + absl::Seconds(5);
  Send(absl::StrCat("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=",
                    absl::ToInt64Microseconds(extend)));
}

Watchdog::Watchdog(base::Clock* clock) : clock_(clock), interval_(absl::InfiniteDuration()) {
  uint64_t usec = 0;
  if (sd_watchdog_enabled(/*unset_environment=*/0, &usec) > 0) {
    interval_ = absl::Microseconds(usec) / 3;
  }
}

void Watchdog::Ping() {
  if (interval_ == absl::InfiniteDuration()) return;
  const int64_t now = absl::ToInt64Nanoseconds(clock_->Monotonic());
  int64_t next = next_ns_.load(std::memory_order_relaxed);
  if (now < next) return;
  if (!next_ns_.compare_exchange_strong(next, now + absl::ToInt64Nanoseconds(interval_))) return;
  Send("WATCHDOG=1");
}

}  // namespace tokend::service
