// What systemd is told (sd_notify); nothing where it does not listen.
#ifndef TOKEND_SERVICE_NOTIFY_H_
#define TOKEND_SERVICE_NOTIFY_H_

#include <atomic>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"

namespace tokend::service {

// Still starting: shown as the unit's status, and asks for another minute.
void NotifyLoading(absl::string_view status);
void NotifyReady();
// Asks for as long as the running turns may take and some more.
void NotifyStopping(absl::Duration drain_timeout);

// The watchdog's heartbeat, at a third of the interval that systemd asks for.
// Thread-safe.
class Watchdog {
 public:
  explicit Watchdog(base::Clock* clock);
  void Ping();

 private:
  base::Clock* const clock_;
  absl::Duration interval_;  // infinite: nobody asks
  std::atomic<int64_t> next_ns_ = 0;
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_NOTIFY_H_
